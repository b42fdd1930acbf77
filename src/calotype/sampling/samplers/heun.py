"""The `heun` sampler: deterministic, second order, two evaluations a step and one in a step to sigma 0."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import slope, toward
from calotype.sampling.protocol import NoiseSource, Query, Sampling


def heun(x: Tensor, sigmas: Sequence[float], _noise: NoiseSource) -> Sampling:
    """Heun's method on the probability-flow ODE (Karras et al. 2022, arXiv:2206.00364, algorithm 1)."""
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield Query(x, sigma, step)
        end = toward(x, denoised, sigma, sigma_next)
        if sigma_next > 0:
            end_denoised = yield Query(end, sigma_next, step)
            slopes = slope(x, denoised, sigma) + slope(end, end_denoised, sigma_next)
            end = x + slopes * ((sigma_next - sigma) / 2)
        x = end
    return x
