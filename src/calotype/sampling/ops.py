"""The few moves that samplers are made of, each a handful of tensor operations with host-side coefficients.

Knows nothing of schedules or of the order in which moves are made.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from calotype.sampling.protocol import NoiseSource


def step_to(x: Tensor, denoised: Tensor, sigma: float, sigma_next: float) -> Tensor:
    """Carry x from sigma to sigma_next along the straight line that ends in `denoised` at sigma 0.

    This is the probability-flow ODE solved exactly for a model whose estimate does not change on the way.
    One formula with many names: an Euler step in sigma, a DDIM step, a first-order DPM-Solver++ step.
    """
    return torch.lerp(denoised, x, sigma_next / sigma)


def derivative(x: Tensor, denoised: Tensor, sigma: float) -> Tensor:
    """dx/dsigma of the probability-flow ODE, which is also the model's estimate of the noise."""
    return (x - denoised) / sigma


def ancestral_split(sigma: float, sigma_next: float, eta: float) -> tuple[float, float]:
    """Split a step into (sigma_down, sigma_up): go down that far, then add fresh noise of that deviation.

    The two add up in variance to sigma_next. With eta 1 the step samples the posterior of DDPM; with eta 0
    nothing random is left.
    """
    posterior_deviation = sigma_next * math.sqrt(1.0 - (sigma_next / sigma) ** 2)
    sigma_up = min(sigma_next, eta * posterior_deviation)
    return math.sqrt(sigma_next**2 - sigma_up**2), sigma_up


def add_noise(x: Tensor, noise: NoiseSource, deviation: float) -> Tensor:
    """Add fresh noise; draws nothing when there is none to add."""
    return x + noise() * deviation if deviation > 0 else x


def weighted_sum(weights: Iterable[float], tensors: Iterable[Tensor]) -> Tensor:
    """Sum of weight * tensor over at least one pair."""
    first, *others = zip(weights, tensors, strict=True)
    total = first[1] * first[0]
    for weight, tensor in others:
        total = torch.add(total, tensor, alpha=weight)
    return total
