"""Computes weights that integrate the polynomial through given points exactly, for multistep samplers.

All arithmetic uses Python floats.
"""

import math
from collections.abc import Sequence


def lagrange_weights(nodes: Sequence[float], moments: Sequence[float]) -> list[float]:
    """Weights w such that sum(w[j] * f[j]) integrates the polynomial through (nodes[j], f[j]).

    `moments[k]` is the integral of u**k, under whatever weight function the caller integrates against.
    """
    weights = []
    for j, node in enumerate(nodes):
        coefficients = [1.0]
        for k, other in enumerate(nodes):
            if k != j:
                coefficients = _times_linear(coefficients, root=other, scale=1.0 / (node - other))
        weights.append(math.fsum(c * moment for c, moment in zip(coefficients, moments, strict=True)))
    return weights


def uniform_moments(count: int) -> list[float]:
    """Integrals of u**k over [0, 1]."""
    return [1.0 / (k + 1) for k in range(count)]


def exponential_moments(rate: float, count: int) -> list[float]:
    """Integrals of rate * exp(-rate * (1 - u)) * u**k over [0, 1]: exponential integrators' phi functions."""
    if rate < 1.0:
        # Integration by parts cancels catastrophically at small rates; this series has only positive terms.
        return [rate * math.exp(-rate) * _moment_series(rate, k) for k in range(count)]
    moments = [-math.expm1(-rate)]
    for k in range(1, count):
        moments.append(1.0 - k / rate * moments[-1])
    return moments


def _moment_series(rate: float, k: int) -> float:
    return math.fsum(rate**n / (math.factorial(n) * (n + k + 1)) for n in range(20))


def _times_linear(coefficients: Sequence[float], *, root: float, scale: float) -> list[float]:
    """Multiply a polynomial, lowest power first, by scale * (u - root)."""
    shifted = [0.0, *coefficients]
    padded = [*coefficients, 0.0]
    return [scale * (high - root * low) for high, low in zip(shifted, padded, strict=True)]
