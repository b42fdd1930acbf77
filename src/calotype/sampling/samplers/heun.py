"""The `heun` sampler: deterministic, second order, two evaluations a step and one in a step to sigma 0."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import derivative, step_to
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def heun(x: Tensor, sigmas: Sequence[float], _noise: NoiseSource) -> SamplerGenerator:
    """Heun's method on the probability-flow ODE (Karras et al. 2022, arXiv:2206.00364, algorithm 1)."""
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        end = step_to(x, denoised, sigma, sigma_next)
        if sigma_next > 0:
            end_denoised = yield DenoiseQuery(end, sigma_next, step)
            derivatives = derivative(x, denoised, sigma) + derivative(end, end_denoised, sigma_next)
            end = x + derivatives * ((sigma_next - sigma) / 2)
        x = end
    return x
