"""The `lcm` sampler: stochastic, for models distilled to predict the final latent, one evaluation a step."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from calotype.sampling.ops import add_noise
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def lcm(x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, s_noise: float = 1.0) -> SamplerGenerator:
    """Multistep consistency sampling (Song et al. 2023, arXiv:2303.01469, algorithm 1; Luo et al. 2023,
    arXiv:2310.04378).

    The distilled model's boundary scaling is not applied: from timestep 2 on it is within 0.1 % of 1.
    """
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        x = add_noise(denoised, noise, sigma_next * s_noise)
    return x
