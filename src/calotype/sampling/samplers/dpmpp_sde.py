"""The `dpmpp_sde` sampler: stochastic, two evaluations a step and one in a step to sigma 0."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from calotype.sampling.ops import add_noise, ancestral_split, step_to
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def dpmpp_sde(
    x: Tensor,
    sigmas: Sequence[float],
    noise: NoiseSource,
    *,
    eta: float = 1.0,
    s_noise: float = 1.0,
    r: float = 0.5,
) -> SamplerGenerator:
    """DPM-Solver++(2S) for the diffusion SDE (Lu et al. 2022, arXiv:2211.01095, algorithm 1 and section 5).

    `eta` is the share of the posterior's noise that is renewed; `s_noise` scales the added noise; `r` is the
    position of the second evaluation within the step, in log sigma.
    """
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        if sigma_next == 0:
            x = step_to(x, denoised, sigma, 0.0)
            continue
        sigma_middle = sigma ** (1.0 - r) * sigma_next**r
        first, whole = (noise, noise) if eta == 0 else _brownian(noise, sigma, sigma_middle, sigma_next)

        sigma_down, sigma_up = ancestral_split(sigma, sigma_middle, eta)
        middle = step_to(x, denoised, sigma, sigma_down)
        middle = add_noise(middle, first, sigma_up * s_noise)
        middle_denoised = yield DenoiseQuery(middle, sigma_middle, step)

        sigma_down, sigma_up = ancestral_split(sigma, sigma_next, eta)
        x = step_to(x, torch.lerp(denoised, middle_denoised, 1.0 / (2.0 * r)), sigma, sigma_down)
        x = add_noise(x, whole, sigma_up * s_noise)
    return x


def _brownian(
    noise: NoiseSource, sigma: float, sigma_middle: float, sigma_next: float
) -> tuple[NoiseSource, NoiseSource]:
    """Unit-variance increments of one Brownian path: from sigma to the middle, and from sigma to sigma_next.

    The path runs in sigma, so an increment's variance is the distance it covers. The points are known in
    advance, and the second increment is the first plus an independent one, so a Brownian tree, which supports
    points in any order, is not needed.
    """
    to_middle, onward = noise(), noise()
    share = (sigma - sigma_middle) / (sigma - sigma_next)
    whole = to_middle * math.sqrt(share) + onward * math.sqrt(1.0 - share)
    return lambda: to_middle, lambda: whole
