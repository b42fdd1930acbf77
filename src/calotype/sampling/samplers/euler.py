"""The `euler` sampler: deterministic, first order, one evaluation a step."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import step_to
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def euler(x: Tensor, sigmas: Sequence[float], _noise: NoiseSource) -> SamplerGenerator:
    """Euler's method on the probability-flow ODE (Karras et al. 2022, arXiv:2206.00364, algorithm 2).

    It omits the algorithm's churn, so it is deterministic.
    """
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        x = step_to(x, denoised, sigma, sigma_next)
    return x
