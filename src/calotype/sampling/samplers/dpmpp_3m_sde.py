"""The `dpmpp_3m_sde` sampler: stochastic, up to three estimates of history, one evaluation a step."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from calotype.sampling.multistep_coefficients import exponential_moments
from calotype.sampling.ops import add_noise
from calotype.sampling.protocol import DenoiseQuery, NoiseSource, SamplerGenerator


def dpmpp_3m_sde(
    x: Tensor, sigmas: Sequence[float], noise: NoiseSource, *, eta: float = 1.0, s_noise: float = 1.0
) -> SamplerGenerator:
    """DPM-Solver++(3M) on the diffusion SDE (Lu et al. 2022, arXiv:2211.01095, sections 4 and 5).

    `eta` scales the noise of the SDE, which is the ODE at 0; `s_noise` scales the added noise.
    """
    estimates: deque[Tensor] = deque(maxlen=3)
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = yield DenoiseQuery(x, sigma, step)
        if sigma_next == 0:
            x = denoised
            continue
        estimates.appendleft(denoised)
        length = math.log(sigma / sigma_next)
        lengths_back = [math.log(sigmas[step - back] / sigma) / length for back in range(1, len(estimates))]
        x = torch.lerp(denoised, x, math.exp(-(1.0 + eta) * length))
        x = _add_curvature(x, estimates, lengths_back, (1.0 + eta) * length)
        x = add_noise(x, noise, s_noise * sigma_next * math.sqrt(-math.expm1(-2.0 * eta * length)))
    return x


def _add_curvature(
    x: Tensor, estimates: Sequence[Tensor], lengths_back: Sequence[float], rate: float
) -> Tensor:
    """Add the contribution of the estimate's change over the step, from differences with earlier estimates.

    `lengths_back` are the distances to the earlier estimates in units of the current step.
    """
    if len(estimates) < 2:
        return x
    _, linear, quadratic = exponential_moments(rate, 3)
    near = lengths_back[0]
    gradient = (estimates[0] - estimates[1]) / near
    if len(estimates) == 2:
        return torch.add(x, gradient, alpha=linear)
    far = lengths_back[1]
    earlier_gradient = (estimates[1] - estimates[2]) / (far - near)
    curvature = (gradient - earlier_gradient) / far
    gradient = torch.add(gradient, curvature, alpha=near)
    # Exact integration of the parabola would use all of `quadratic`. The authors' code and other programs use
    # half of it (order 2), and so does this, to give the same image for the same settings.
    return x + gradient * linear + curvature * (quadratic / 2)
