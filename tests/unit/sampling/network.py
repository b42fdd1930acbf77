"""A stand-in for the UNet: a fixed nonlinear noise prediction, and a record of what samplers do with it."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calotype.sampling.api import no_noise, sample
from calotype.sampling.parameterization import scale_input, to_denoised
from calotype.sampling.protocol import DenoiseQuery, NoiseSource


def predict_noise(scaled: Tensor, sigma: float) -> Tensor:
    """What the UNet would say of input already scaled to unit variance."""
    return torch.tanh(scaled * 0.8 + 0.3 * math.sin(3.0 * math.log(sigma))) + 0.1 * scaled


def denoise(x: Tensor, sigma: float) -> Tensor:
    """The same network as samplers see it."""
    return to_denoised("epsilon", predict_noise(scale_input(x, sigma), sigma), x, sigma)


class Trajectory(NamedTuple):
    """Every latent a sampler asked about, and last the one it returned; with the noise level of each."""

    states: list[Tensor]
    sigmas: list[float]


def record(
    sampler: str,
    x: Tensor,
    sigmas: Sequence[float],
    noise: NoiseSource = no_noise,
    denoise: Callable[[Tensor, float], Tensor] = denoise,
    **options: float | int | str,
) -> Trajectory:
    """Run a sampler and keep its whole trajectory."""
    queries: list[DenoiseQuery] = []
    final = sample(
        denoise, x, sigmas, sampler, noise, callback=lambda query, _: queries.append(query), **options
    )
    return Trajectory([*(q.x for q in queries), final], [*(q.sigma for q in queries), sigmas[-1]])
