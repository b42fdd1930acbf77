"""The `ddim` sampler: first order, one evaluation a step, deterministic unless eta is raised."""

from collections.abc import Sequence

from torch import Tensor

from calotype.sampling.protocol import NoiseSource, SamplerGenerator
from calotype.sampling.samplers.euler_ancestral import euler_ancestral


def ddim(
    x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, eta: float = 0.0, s_noise: float = 1.0
) -> SamplerGenerator:
    """Denoising diffusion implicit models (Song et al. 2021, arXiv:2010.02502, equations 12 and 16).

    Divided by the signal amplitude, equation 12 is the ancestral Euler step of the same eta; the name exists
    because users and files use it.
    """
    return euler_ancestral(x, sigmas, noise, eta=eta, s_noise=s_noise)
