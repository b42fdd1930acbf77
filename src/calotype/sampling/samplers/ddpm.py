"""The `ddpm` sampler: stochastic, first order, one evaluation a step."""

from collections.abc import Sequence

from torch import Tensor

from calotype.sampling.protocol import NoiseSource, SamplerGenerator
from calotype.sampling.samplers.euler_ancestral import euler_ancestral


def ddpm(x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, s_noise: float = 1.0) -> SamplerGenerator:
    """Ancestral sampling, small posterior variance (Ho et al. 2020, arXiv:2006.11239, equations 6 and 7).

    Divided by the signal amplitude, that posterior is the ancestral Euler step with eta 1.
    """
    return euler_ancestral(x, sigmas, noise, eta=1.0, s_noise=s_noise)
