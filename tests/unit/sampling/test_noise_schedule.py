"""Training noise levels against diffusers, and the way between sigma and timestep."""

import math
from typing import Any

import numpy as np
import pytest
from diffusers import EulerDiscreteScheduler
from hypothesis import given
from hypothesis import strategies as st

from calotype.sampling.noise_schedule import TrainingSchedule, training_schedule

STABLE_DIFFUSION = training_schedule()


@pytest.mark.parametrize(
    "config",
    [
        {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012},
        {"beta_schedule": "linear", "beta_start": 0.0001, "beta_end": 0.02},
        {"beta_schedule": "squaredcos_cap_v2"},
        {
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "num_train_timesteps": 200,
        },
        {
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "rescale_betas_zero_snr": True,
        },
    ],
)
def test_sigmas_equal_those_of_diffusers(config: dict[str, Any]) -> None:
    """The independent reference is diffusers' EulerDiscreteScheduler, which works in float32.

    1 − ᾱ has few digits left there at both ends of the schedule, hence the tolerance.
    """
    expected = EulerDiscreteScheduler(**config).sigmas.flip(0)[1:].double().numpy()
    np.testing.assert_allclose(training_schedule(**config).sigmas, expected, rtol=5e-4)


def test_stable_diffusion_levels_are_the_known_ones() -> None:
    """Reference: the first and last noise level that Align Your Steps (arXiv:2404.14507) gives for SD 1.5."""
    assert STABLE_DIFFUSION.sigma_min == pytest.approx(0.0291671582, rel=1e-8)
    assert STABLE_DIFFUSION.sigma_max == pytest.approx(14.6146412293, rel=1e-8)
    assert len(STABLE_DIFFUSION.sigmas) == 1000


def test_zero_terminal_snr_ends_at_the_least_signal_half_precision_holds() -> None:
    assert training_schedule(rescale_betas_zero_snr=True).sigma_max == pytest.approx(4096.0, rel=1e-6)


def test_zero_terminal_snr_on_a_steep_schedule_still_ascends() -> None:
    sigmas = training_schedule(beta_end=0.02, rescale_betas_zero_snr=True).sigmas
    assert sigmas[-2] > 4096
    assert sigmas[-1] == pytest.approx(2 * sigmas[-2], rel=1e-3)


def test_whole_timesteps_map_to_the_training_sigmas_and_back() -> None:
    for timestep, sigma in enumerate(STABLE_DIFFUSION.sigmas):
        assert STABLE_DIFFUSION.timestep_to_sigma(timestep) == sigma
        assert STABLE_DIFFUSION.sigma_to_timestep(sigma) == timestep


@given(st.floats(min_value=0.0, max_value=999.0))
def test_fractional_timesteps_survive_the_round_trip(timestep: float) -> None:
    sigma = STABLE_DIFFUSION.timestep_to_sigma(timestep)
    assert STABLE_DIFFUSION.sigma_to_timestep(sigma) == pytest.approx(timestep, abs=1e-8)


@given(st.floats(min_value=0.0292, max_value=14.6))
def test_sigma_to_timestep_equals_diffusers(sigma: float) -> None:
    """The independent reference is the interpolation in diffusers' EulerDiscreteScheduler."""
    log_sigmas = np.log(np.asarray(STABLE_DIFFUSION.sigmas))
    expected = EulerDiscreteScheduler._sigma_to_t(None, np.asarray(sigma), log_sigmas)
    assert STABLE_DIFFUSION.sigma_to_timestep(sigma) == pytest.approx(float(expected), abs=1e-6)


def test_outside_the_training_range_both_ways_hold_at_the_ends() -> None:
    assert STABLE_DIFFUSION.sigma_to_timestep(0.0) == 0.0
    assert STABLE_DIFFUSION.sigma_to_timestep(1e9) == 999.0
    assert STABLE_DIFFUSION.timestep_to_sigma(-3.0) == STABLE_DIFFUSION.sigma_min
    assert STABLE_DIFFUSION.timestep_to_sigma(2000.0) == STABLE_DIFFUSION.sigma_max


@pytest.mark.parametrize(
    "sigmas", [(1.0,), (1.0, 1.0), (2.0, 1.0), (0.0, 1.0), (1.0, math.inf), (1.0, math.nan)]
)
def test_impossible_levels_are_refused(sigmas: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="strictly ascending"):
        TrainingSchedule(sigmas)


def test_an_unknown_beta_schedule_is_named_with_the_known_ones() -> None:
    config: dict[str, Any] = {"beta_schedule": "sigmoid"}
    with pytest.raises(ValueError, match=r"'sigmoid' is unknown.*scaled_linear"):
        training_schedule(**config)
