"""The `dpmpp_2m_sde` sampler: stochastic, second order, one evaluation a step."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from calotype.sampling.ops import add_noise
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def dpmpp_2m_sde(
    x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, eta: float = 1.0, s_noise: float = 1.0
) -> SamplerGenerator:
    """SDE-DPM-Solver++(2M), midpoint form (Lu et al. 2022, arXiv:2211.01095, section 5).

    `eta` scales the noise of the SDE, which is the ODE at 0; `s_noise` scales the added noise.
    """
    previous: Tensor | None = None
    previous_length = 0.0
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        if sigma_next == 0:
            x = denoised
            continue
        length = math.log(sigma / sigma_next)
        target = denoised
        if previous is not None:
            # The estimate half a step ahead, on the line through the last two.
            target = torch.lerp(previous, denoised, 1.0 + length / previous_length / 2)
        x = torch.lerp(target, x, math.exp(-(1.0 + eta) * length))
        x = add_noise(x, noise, s_noise * sigma_next * math.sqrt(-math.expm1(-2.0 * eta * length)))
        previous, previous_length = denoised, length
    return x
