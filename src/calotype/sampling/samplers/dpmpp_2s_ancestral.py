"""The `dpmpp_2s_ancestral` sampler: stochastic, two evaluations a step and one in a step to sigma 0."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import add_noise, ancestral_split, step_to
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def dpmpp_2s_ancestral(
    x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, eta: float = 1.0, s_noise: float = 1.0
) -> SamplerGenerator:
    """DPM-Solver++(2S) steps, r = 1/2, ancestral noise (Lu et al. 2022, arXiv:2211.01095, algorithm 1).

    `eta` is the share of the posterior's noise that is renewed; `s_noise` scales the added noise.
    """
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        sigma_down, sigma_up = ancestral_split(sigma, sigma_next, eta)
        if sigma_down > 0:
            sigma_middle = math.sqrt(sigma * sigma_down)
            middle = step_to(x, denoised, sigma, sigma_middle)
            denoised = yield DenoiseQuery(middle, sigma_middle, step)
        x = step_to(x, denoised, sigma, sigma_down)
        x = add_noise(x, noise, sigma_up * s_noise)
    return x
