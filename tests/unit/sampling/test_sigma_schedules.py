"""Sigma schedules: against diffusers where it has them, and by the rules of ComfyUI that workflows need."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from diffusers import EulerDiscreteScheduler

from calotype.sampling.noise_schedule import training_schedule
from calotype.sampling.sigma_schedules import SCHEDULES, SKIPS_LAST_POSITIVE_SIGMA, sigmas_for
from calotype.spec import constants

TRAINING = training_schedule()


def of_diffusers(steps: int, **config: bool | str) -> np.ndarray:
    scheduler = EulerDiscreteScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, **config
    )
    scheduler.set_timesteps(steps)
    return scheduler.sigmas.double().numpy()


def test_names_equal_those_a_request_may_use() -> None:
    assert (*SCHEDULES, *constants.A1111_SCHEDULES) == constants.SCHEDULES


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 7, 20, 50, 1000])
def test_every_schedule_descends_strictly_to_zero_within_the_training_range(
    schedule: str, steps: int
) -> None:
    sigmas = SCHEDULES[schedule](TRAINING, steps)
    assert all(high > low for high, low in pairwise(sigmas))
    assert sigmas[-1] == 0.0
    assert sigmas[0] <= TRAINING.sigma_max * (1 + 1e-12)
    assert sigmas[-2] >= TRAINING.sigma_min * (1 - 1e-12)
    assert all(isinstance(sigma, float) for sigma in sigmas)


@pytest.mark.parametrize("steps", [4, 10, 28, 38, 112])
def test_normal_equals_diffusers_linspace(steps: int) -> None:
    """Reference: diffusers 'linspace' spacing, at step counts whose timesteps are whole numbers.

    Between them diffusers interpolates sigma and ComfyUI its logarithm.
    """
    expected = of_diffusers(steps, timestep_spacing="linspace")
    np.testing.assert_allclose(SCHEDULES["normal"](TRAINING, steps), expected, rtol=1e-4)


@pytest.mark.parametrize("steps", [2, 8, 25])
def test_karras_equals_diffusers(steps: int) -> None:
    """Reference: diffusers with use_karras_sigmas."""
    expected = of_diffusers(steps, use_karras_sigmas=True)
    np.testing.assert_allclose(SCHEDULES["karras"](TRAINING, steps), expected, rtol=1e-4)


@pytest.mark.parametrize("steps", [2, 8, 25])
def test_exponential_equals_diffusers(steps: int) -> None:
    """Reference: diffusers with use_exponential_sigmas."""
    expected = of_diffusers(steps, use_exponential_sigmas=True)
    np.testing.assert_allclose(SCHEDULES["exponential"](TRAINING, steps), expected, rtol=1e-4)


@pytest.mark.parametrize("steps", [5, 10, 25])
def test_simple_equals_diffusers_trailing(steps: int) -> None:
    """Reference: diffusers 'trailing' spacing, the same thing where steps divide 1000."""
    expected = of_diffusers(steps, timestep_spacing="trailing")
    np.testing.assert_allclose(SCHEDULES["simple"](TRAINING, steps), expected, rtol=1e-4)


@pytest.mark.parametrize("steps", [5, 10, 25])
def test_ddim_uniform_equals_diffusers_leading(steps: int) -> None:
    """Reference: diffusers 'leading' spacing with Stable Diffusion's offset of 1, where steps divide 1000."""
    scheduler = EulerDiscreteScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        timestep_spacing="leading",
        steps_offset=1,
    )
    scheduler.set_timesteps(steps)
    np.testing.assert_allclose(
        SCHEDULES["ddim_uniform"](TRAINING, steps), scheduler.sigmas.numpy(), rtol=1e-4
    )


def test_sgm_uniform_is_normal_with_one_step_more_and_without_its_last_level() -> None:
    longer = SCHEDULES["normal"](TRAINING, 11)
    assert SCHEDULES["sgm_uniform"](TRAINING, 10) == (*longer[:10], 0.0)


@pytest.mark.parametrize("steps", [5, 20, 40])
def test_beta_timesteps_are_quantiles_of_the_beta_distribution(steps: int) -> None:
    """Reference: scipy's cumulative distribution, the inverse of what the schedule computes.

    diffusers' schedule of this name spreads sigmas, not timesteps, so it cannot serve.
    """
    sigmas = SCHEDULES["beta"](TRAINING, steps)[:-1]
    for index, sigma in enumerate(sigmas):
        timestep = TRAINING.sigmas.index(sigma)
        low, high = scipy.stats.beta.cdf([(timestep - 0.5) / 999, (timestep + 0.5) / 999], 0.6, 0.6)
        assert low <= 1.0 - index / steps <= high


def test_beta_visits_a_timestep_once() -> None:
    assert len(SCHEDULES["beta"](TRAINING, 1000)) < 1001


def test_ddim_uniform_may_take_more_steps_than_asked() -> None:
    """1000 // 30 = 33, and 1, 34, …, 991 are 31 levels: ComfyUI runs 31 steps here, so we do."""
    assert len(SCHEDULES["ddim_uniform"](TRAINING, 30)) == 32


def test_too_many_simple_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1000 steps, got 1001; use 'normal'"):
        SCHEDULES["simple"](TRAINING, 1001)


@pytest.mark.parametrize(
    ("denoise", "full_steps"), [(0.5, 40), (0.7, 28), (0.75, 26), (0.3, 66), (0.999, 20), (0.05, 400)]
)
def test_partial_denoise_keeps_the_end_of_a_longer_schedule(denoise: float, full_steps: int) -> None:
    """The rule is ComfyUI's: int(steps / denoise) steps, of which the last are run."""
    sigmas = sigmas_for("karras", TRAINING, 20, denoise=denoise)
    assert sigmas == SCHEDULES["karras"](TRAINING, full_steps)[-21:]
    assert len(sigmas) == 21


def test_full_denoise_is_the_whole_schedule() -> None:
    assert sigmas_for("ddim_uniform", TRAINING, 30) == SCHEDULES["ddim_uniform"](TRAINING, 30)
    assert sigmas_for("normal", TRAINING, 30, denoise=0.99995) == SCHEDULES["normal"](TRAINING, 30)


def test_no_denoise_leaves_nothing_to_do() -> None:
    assert sigmas_for("normal", TRAINING, 30, denoise=0.0) == ()


@pytest.mark.parametrize("sampler", sorted(SKIPS_LAST_POSITIVE_SIGMA))
def test_some_samplers_skip_the_smallest_sigma(sampler: str) -> None:
    sigmas = sigmas_for("karras", TRAINING, 10, sampler=sampler)
    assert sigmas == (*SCHEDULES["karras"](TRAINING, 11)[:10], 0.0)


def test_samplers_that_skip_exist() -> None:
    assert set(constants.SAMPLERS) >= SKIPS_LAST_POSITIVE_SIGMA


def test_bad_requests_name_the_value_and_the_limit() -> None:
    with pytest.raises(ValueError, match=r"'linear' is unknown; use one of \['beta'"):
        sigmas_for("linear", TRAINING, 10)
    with pytest.raises(ValueError, match="at least 1 step, got 0"):
        sigmas_for("normal", TRAINING, 0)
    for denoise in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1, got"):
            sigmas_for("normal", TRAINING, 10, denoise=denoise)
