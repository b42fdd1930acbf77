"""The `dpmpp_2m` sampler: deterministic, second order, one evaluation a step."""

from collections.abc import Sequence

from torch import Tensor

from calotype.sampling.protocol import NoiseSource, SamplerGenerator
from calotype.sampling.samplers.dpmpp_2m_sde import dpmpp_2m_sde


def dpmpp_2m(x: Tensor, sigmas: Sequence[float], noise: NoiseSource) -> SamplerGenerator:
    """DPM-Solver++(2M) (Lu et al. 2022, arXiv:2211.01095, algorithm 2).

    It is the SDE version with eta 0.
    """
    return dpmpp_2m_sde(x, sigmas, noise, eta=0.0)
