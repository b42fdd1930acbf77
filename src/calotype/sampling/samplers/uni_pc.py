"""The `uni_pc` sampler: deterministic predictor-corrector, one evaluation a step."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor

from calotype.sampling.multistep_coefficients import exponential_moments, lagrange_weights
from calotype.sampling.ops import step_to, weighted_sum
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator

Solver = Literal["bh1", "bh2"]
Estimate = tuple[float, Tensor]
"""A noise level and the denoised estimate made there."""


def uni_pc(
    x: Tensor, sigmas: Sequence[float], _noise: NoiseSource, *, order: int = 2, solver: Solver = "bh2"
) -> SamplerGenerator:
    """UniPC on the denoised estimate (Zhao et al. 2023, arXiv:2302.04867, algorithms 1 and 2).

    Each estimate is used twice: to correct the step that led to it, then to predict the next one. `order` is
    how many estimates a prediction uses, fewer at both ends of the schedule; `solver` is the paper's B(h).
    """
    num_steps = len(sigmas) - 1
    start, known = x, list[Estimate]()
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        if known:
            x = _correct(start, known, (sigma, denoised), solver)
        known = [(sigma, denoised), *known][: min(order, num_steps - step)]
        start, x = x, _predict(x, known, sigma_next, solver)
    return x


def _predict(x: Tensor, known: Sequence[Estimate], sigma_next: float, solver: Solver) -> Tensor:
    """Carry x from the newest known level to sigma_next."""
    sigma, denoised = known[0]
    if len(known) == 1:
        return step_to(x, denoised, sigma, sigma_next)
    if len(known) == 2:
        # The paper fixes this weight instead of solving for it; only here, and in the first correction, does
        # the choice of B(h) make a difference.
        length = math.log(sigma / sigma_next)
        earlier_sigma, earlier = known[1]
        weight = _step_function(length, solver) / 2 * length / math.log(earlier_sigma / sigma)
        return step_to(x, denoised, sigma, sigma_next) + (denoised - earlier) * weight
    return _integrate(x, known, sigma, sigma_next)


def _correct(x: Tensor, known: Sequence[Estimate], new: Estimate, solver: Solver) -> Tensor:
    """Repeat the step that led to `new`, which started at x, with the estimate made at its end."""
    sigma, denoised = known[0]
    new_sigma, new_denoised = new
    if len(known) == 1:
        weight = _step_function(math.log(sigma / new_sigma), solver) / 2
        return step_to(x, denoised, sigma, new_sigma) + (new_denoised - denoised) * weight
    return _integrate(x, [*known, new], sigma, new_sigma)


def _integrate(x: Tensor, estimates: Sequence[Estimate], sigma: float, sigma_next: float) -> Tensor:
    """Step from sigma to sigma_next, the estimate being the polynomial in log sigma through those given.

    Where the paper solves a linear system for its weights, B(h) cancels and this is what comes out.
    """
    length = math.log(sigma / sigma_next)
    nodes = [math.log(sigma / level) / length for level, _ in estimates]
    weights = lagrange_weights(nodes, exponential_moments(length, len(nodes)))
    return x * (sigma_next / sigma) + weighted_sum(weights, (denoised for _, denoised in estimates))


def _step_function(length: float, solver: Solver) -> float:
    """The paper's B(h), with the sign that adds to the prediction."""
    return length if solver == "bh1" else -math.expm1(-length)
