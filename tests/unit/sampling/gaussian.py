"""A data set for which everything is known in closed form: normally distributed numbers.

The best possible denoiser, and the exact solution of the probability-flow ODE, are one line each.
"""

import math

from torch import Tensor

MEAN = 0.7
DEVIATION = 0.5


def total_deviation(sigma: float) -> float:
    """Standard deviation of the data after noise of deviation sigma is added."""
    return math.hypot(DEVIATION, sigma)


def denoise(x: Tensor, sigma: float) -> Tensor:
    """E[clean | x]."""
    return MEAN + (x - MEAN) * (DEVIATION / total_deviation(sigma)) ** 2


def flow(x: Tensor, sigma: float, sigma_to: float) -> Tensor:
    """Where the probability-flow ODE carries x from sigma to sigma_to."""
    return MEAN + (x - MEAN) * (total_deviation(sigma_to) / total_deviation(sigma))
