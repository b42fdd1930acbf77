"""The `euler_ancestral` sampler: stochastic, first order, one evaluation a step."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import add_noise, ancestral_split, step_to
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def euler_ancestral(
    x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, eta: float = 1.0, s_noise: float = 1.0
) -> SamplerGenerator:
    """Euler past the next sigma, then noise back up to it (Song et al. 2021, arXiv:2011.13456, appendix F).

    `eta` is the share of the posterior's noise that is renewed; `s_noise` scales the added noise.
    """
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        sigma_down, sigma_up = ancestral_split(sigma, sigma_next, eta)
        x = step_to(x, denoised, sigma, sigma_down)
        x = add_noise(x, noise, sigma_up * s_noise)
    return x
