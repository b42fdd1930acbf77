"""Integration weights against scipy's numerical integration."""

import math

import pytest
import scipy.integrate

from calotype.sampling.multistep_coefficients import exponential_moments, lagrange_weights, uniform_moments


@pytest.mark.parametrize("rate", [1e-6, 1e-2, 0.5, 0.999, 1.001, 5.0, 40.0])
def test_exponential_moments_equal_numerical_integration(rate: float) -> None:
    """The independent reference is scipy.integrate.quad."""
    for power, moment in enumerate(exponential_moments(rate, 5)):
        expected, _ = scipy.integrate.quad(
            lambda u, k=power: rate * math.exp(-rate * (1 - u)) * u**k, 0, 1, epsabs=0, epsrel=1e-12
        )
        assert moment == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "nodes", [[0.0], [0.0, -1.0], [0.0, -0.7, -1.9], [0.0, -1.2, 1.0], [0.0, -1.0, -2.5, -3.1]]
)
def test_weights_integrate_polynomials_exactly(nodes: list[float]) -> None:
    weights = lagrange_weights(nodes, uniform_moments(len(nodes)))
    for power in range(len(nodes)):
        total = sum(weight * node**power for weight, node in zip(weights, nodes, strict=True))
        assert total == pytest.approx(1.0 / (power + 1), abs=1e-12)


def test_equal_steps_give_the_textbook_adams_bashforth_weights() -> None:
    weights = lagrange_weights([0.0, -1.0, -2.0, -3.0], uniform_moments(4))
    assert weights == pytest.approx([55 / 24, -59 / 24, 37 / 24, -9 / 24])
