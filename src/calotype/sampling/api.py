"""Starts a sampler by name, or runs one to the end.

The server drives many generators from `begin` at a time; `sample` is the loop for one.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import get_args

import torch
from torch import Tensor

from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator
from calotype.sampling.samplers import SAMPLERS
from calotype.sampling.samplers.uni_pc import Solver

Denoise = Callable[[Tensor, float], Tensor]
"""(x, sigma) -> the estimate of the clean latent, with the shape and dtype of x."""

Callback = Callable[[DenoiseQuery, Tensor], None]
"""Called with each query and its denoised latent."""

_OPTION_LIMITS: dict[str, tuple[float, float]] = {
    "eta": (0.0, math.inf),
    "s_noise": (0.0, math.inf),
    "r": (1e-3, 1.0),
    "order": (1, 4),
}


def no_noise() -> Tensor:
    """The noise source of a run that must not draw noise."""
    raise ValueError("this sampler draws noise but has no noise source; pass noise=NoiseStream(...).next")


def begin(
    sampler: str,
    x: Tensor,
    sigmas: Sequence[float],
    noise: NoiseSource = no_noise,
    **options: float | int | str,
) -> SamplerGenerator:
    """Return a sampler to drive: `next()` gives its first query, `send(denoised)` each further one.

    It ends with StopIteration, whose value is the final latent; immediately with fewer than two sigmas.
    """
    _check_sigmas(sigmas)
    known = sampler_options(sampler)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"sampler {sampler!r} has no option {unknown}; it has {sorted(known) or 'none'}")
    _check_options(options)
    return SAMPLERS[sampler](x, tuple(sigmas), noise, **options)


def sample(
    denoise: Denoise,
    x: Tensor,
    sigmas: Sequence[float],
    sampler: str = "euler",
    noise: NoiseSource = no_noise,
    *,
    callback: Callback | None = None,
    **options: float | int | str,
) -> Tensor:
    """Run one sampler from x, at noise level sigmas[0], to sigmas[-1], and return the final latent."""
    run = begin(sampler, x, sigmas, noise, **options)
    denoised: Tensor | None = None
    while True:
        try:
            query = next(run) if denoised is None else run.send(denoised)
        except StopIteration as finished:
            return finished.value
        denoised = denoise(query.x, query.sigma)
        if callback is not None:
            callback(query, denoised)


def sampler_options(sampler: str) -> dict[str, float | int | str]:
    """The options of a sampler, with their defaults."""
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler {sampler!r} is unknown; use one of {sorted(SAMPLERS)}")
    parameters = inspect.signature(SAMPLERS[sampler]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def count_evaluations(sampler: str, sigmas: Sequence[float], **options: float | int | str) -> int:
    """The number of model evaluations of a run, counted by running it on empty latents."""
    empty = torch.empty(0)
    num_evaluations = 0

    def count(_query: DenoiseQuery, _denoised: Tensor) -> None:
        nonlocal num_evaluations
        num_evaluations += 1

    sample(lambda x, _sigma: x, empty, sigmas, sampler, lambda: empty, callback=count, **options)
    return num_evaluations


def _check_options(options: Mapping[str, float | int | str]) -> None:
    for name, value in options.items():
        if name == "solver":
            if value not in get_args(Solver):
                raise ValueError(f"option solver={value!r} is unknown; use one of {get_args(Solver)}")
            continue
        least, most = _OPTION_LIMITS[name]
        if isinstance(value, str) or not least <= value <= most:
            raise ValueError(f"option {name}={value!r} is outside {least}..{most}")


def _check_sigmas(sigmas: Sequence[float]) -> None:
    """Raise ValueError unless sigmas descend: others would divide by zero inside a multistep formula."""
    for index, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        if not math.inf > sigma > sigma_next >= 0.0:
            raise ValueError(
                f"sigmas must descend strictly and end at 0 or above, but sigmas[{index}] = {sigma} is "
                f"followed by {sigma_next}; build them with calotype.sampling.sigmas_of_run"
            )
