"""The `dpm_2` sampler: deterministic, second order, two evaluations a step and one in a step to sigma 0."""

from collections.abc import Sequence

from torch import Tensor

from calotype.sampling.protocol import NoiseSource, SamplerGenerator
from calotype.sampling.samplers.dpm_2_ancestral import dpm_2_ancestral


def dpm_2(x: Tensor, sigmas: Sequence[float], noise: NoiseSource) -> SamplerGenerator:
    """The midpoint method, midpoint in log sigma (after DPM-Solver-2, Lu et al. 2022, arXiv:2206.00927).

    It is the ancestral sampler with eta 0.
    """
    return dpm_2_ancestral(x, sigmas, noise, eta=0.0)
