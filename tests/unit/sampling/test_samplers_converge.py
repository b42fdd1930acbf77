"""Samplers on Gaussian data, whose exact answer is known: the order of the solvers, the law of the samples.

The independent reference is the closed form in `gaussian`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from calotype.sampling.api import sample
from tests.unit.sampling import gaussian

FROM, TO = 10.0, 0.1


def geometric(steps: int, start: float = FROM, end: float = TO) -> tuple[float, ...]:
    return tuple(start * (end / start) ** (index / steps) for index in range(steps + 1))


def error(sampler: str, sigmas: tuple[float, ...], options: dict[str, Any]) -> float:
    x = gaussian.MEAN + gaussian.total_deviation(FROM) * torch.linspace(-2, 2, 9, dtype=torch.float64)
    got = sample(gaussian.denoise, x, sigmas, sampler, **options)
    return float((got - gaussian.flow(x, FROM, sigmas[-1])).abs().max())


def order_of(steps: Sequence[int], errors: Sequence[float]) -> float:
    """The slope of log error against log steps."""
    slope, _ = np.polyfit(np.log(steps), -np.log(errors), 1)
    return float(slope)


@pytest.mark.parametrize(
    ("sampler", "order", "options"),
    [
        ("euler", 1, {}),
        ("ddim", 1, {}),
        ("heun", 2, {}),
        ("dpm_2", 2, {}),
        ("dpm_2_ancestral", 2, {"eta": 0.0}),
        ("dpmpp_2s_ancestral", 2, {"eta": 0.0}),
        ("dpmpp_sde", 2, {"eta": 0.0}),
        ("dpmpp_sde", 2, {"eta": 0.0, "r": 0.3}),
        ("dpmpp_2m", 2, {}),
        # Second, not third: see the comment in the sampler.
        ("dpmpp_3m_sde", 2, {"eta": 0.0}),
        ("pndm", 2, {}),
        # Fourth, less what its first steps of lower order cost.
        ("lms", 3.3, {}),
        ("lms", 1, {"order": 1}),
    ],
)
def test_deterministic_samplers_converge_at_their_order(
    sampler: str, order: float, options: dict[str, Any]
) -> None:
    steps = [20, 40, 80, 160]
    errors = [error(sampler, geometric(count), options) for count in steps]
    assert order_of(steps, errors) > order - 0.1


@pytest.mark.parametrize("solver", ["bh1", "bh2"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_uni_pc_converges_at_one_order_more_than_its_predictor(order: int, solver: str) -> None:
    """The UniPC paper's theorem. The last step is first order by design, so that one is made very short."""
    steps = [20, 40, 80, 160]
    options: dict[str, Any] = {"order": order, "solver": solver}
    errors = [error("uni_pc", (*geometric(count), TO * (1 - 1e-9)), options) for count in steps]
    assert order_of(steps, errors) > order + 1 - 0.1


def run_many(sampler: str, steps: int, options: dict[str, Any], *, end: float = 0.0) -> Tensor:
    """A great many one-dimensional images, started from the exact law at FROM."""
    generator = torch.Generator().manual_seed(11)

    def noise() -> Tensor:
        return torch.randn(100_000, generator=generator)

    x = gaussian.MEAN + gaussian.total_deviation(FROM) * noise()
    sigmas = geometric(steps, end=end) if end else (*geometric(steps - 1, end=0.02), 0.0)
    return sample(gaussian.denoise, x, sigmas, sampler, noise, **options)


# With the error that is left in the deviation at these numbers of steps: first order 3 %, second order 1 %.
STOCHASTIC: list[tuple[str, float, dict[str, Any]]] = [
    ("euler_ancestral", 0.03, {}),
    ("euler_ancestral", 0.03, {"eta": 0.5}),
    ("dpm_2_ancestral", 0.01, {}),
    ("dpmpp_2s_ancestral", 0.01, {}),
    ("dpmpp_sde", 0.01, {}),
    ("dpmpp_sde", 0.01, {"eta": 0.5}),
    ("dpmpp_sde", 0.01, {"r": 0.3}),
    ("dpmpp_2m_sde", 0.01, {}),
    ("dpmpp_2m_sde", 0.01, {"eta": 0.3}),
    ("dpmpp_3m_sde", 0.01, {}),
    ("ddim", 0.03, {"eta": 1.0}),
    ("ddpm", 0.03, {}),
]


@pytest.mark.parametrize(("sampler", "tolerance", "options"), STOCHASTIC)
def test_stochastic_samplers_reach_the_law_of_the_data(
    sampler: str, tolerance: float, options: dict[str, Any]
) -> None:
    samples = run_many(sampler, 150, options)
    assert float(samples.mean()) == pytest.approx(gaussian.MEAN, abs=0.01)
    assert float(samples.std()) == pytest.approx(gaussian.DEVIATION, rel=tolerance)


@pytest.mark.parametrize(("sampler", "tolerance", "options"), STOCHASTIC)
def test_stochastic_samplers_stop_at_any_noise_level(
    sampler: str, tolerance: float, options: dict[str, Any]
) -> None:
    samples = run_many(sampler, 100, options, end=0.5)
    assert float(samples.mean()) == pytest.approx(gaussian.MEAN, abs=0.02)
    assert float(samples.std()) == pytest.approx(gaussian.total_deviation(0.5), rel=tolerance)


def test_the_bias_of_ancestral_sampling_falls_with_the_number_of_steps() -> None:
    few, many = (float(run_many("euler_ancestral", steps, {}).std()) for steps in (25, 200))
    assert gaussian.DEVIATION - few > 4 * abs(gaussian.DEVIATION - many)


@pytest.mark.parametrize("steps", [1, 4])
def test_lcm_with_a_perfect_consistency_model_is_exact_in_any_number_of_steps(steps: int) -> None:
    """A consistency model jumps to the end of the ODE, which the closed form gives."""
    generator = torch.Generator().manual_seed(12)

    def noise() -> Tensor:
        return torch.randn(100_000, generator=generator)

    x = gaussian.MEAN + gaussian.total_deviation(FROM) * noise()
    sigmas = (*geometric(steps, end=0.5)[:-1], 0.0)
    samples = sample(lambda x, sigma: gaussian.flow(x, sigma, 0.0), x, sigmas, "lcm", noise)
    assert float(samples.mean()) == pytest.approx(gaussian.MEAN, abs=0.01)
    assert float(samples.std()) == pytest.approx(gaussian.DEVIATION, rel=0.01)
