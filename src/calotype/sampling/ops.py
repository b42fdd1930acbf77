"""The operations that samplers consist of: a few tensor operations each, with host-side coefficients."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from calotype.sampling.protocol import NoiseSource


def step_to(x: Tensor, denoised: Tensor, sigma: float, sigma_next: float) -> Tensor:
    """Move x from sigma to sigma_next along the straight line that ends in `denoised` at sigma 0.

    It solves the probability-flow ODE exactly for a model whose estimate is constant over the step. The
    formula is also known as an Euler step in sigma, a DDIM step and a first-order DPM-Solver++ step.
    """
    return torch.lerp(denoised, x, sigma_next / sigma)


def derivative(x: Tensor, denoised: Tensor, sigma: float) -> Tensor:
    """dx/dsigma of the probability-flow ODE, which is also the model's estimate of the noise."""
    return (x - denoised) / sigma


def ancestral_split(sigma: float, sigma_next: float, eta: float) -> tuple[float, float]:
    """Split a step into (sigma_down, sigma_up): denoise to sigma_down, then add noise of deviation sigma_up.

    Their variances add up to that of sigma_next. With eta 1 the step samples the posterior of DDPM; with
    eta 0 it is deterministic.
    """
    posterior_deviation = sigma_next * math.sqrt(1.0 - (sigma_next / sigma) ** 2)
    sigma_up = min(sigma_next, eta * posterior_deviation)
    return math.sqrt(sigma_next**2 - sigma_up**2), sigma_up


def add_noise(x: Tensor, noise: NoiseSource, deviation: float) -> Tensor:
    """Add new noise; draws nothing at deviation 0."""
    return x + noise() * deviation if deviation > 0 else x


def weighted_sum(weights: Iterable[float], tensors: Iterable[Tensor]) -> Tensor:
    """Sum of weight * tensor over at least one pair."""
    first, *others = zip(weights, tensors, strict=True)
    total = first[1] * first[0]
    for weight, tensor in others:
        total = torch.add(total, tensor, alpha=weight)
    return total
