"""The timestep spacings of scheduler configurations: noise levels against those of diffusers' schedulers."""

from itertools import pairwise
from typing import Any

import diffusers
import numpy as np
import pytest

from calotype.sampling.noise_schedule import training_schedule
from calotype.sampling.sigma_schedules import sigmas_for
from calotype.sampling.timestep_spacing import SPACINGS

BETAS = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
STEPS = [2, 4, 7, 20, 30, 50]


def _levels_of(name: str, steps: int, **settings: Any) -> np.ndarray:
    """Sigmas of the timesteps that the scheduler visits, without its final one."""
    scheduler = getattr(diffusers, name)(**BETAS, **settings)
    scheduler.set_timesteps(steps)
    if hasattr(scheduler, "sigmas") and name != "LCMScheduler":
        return scheduler.sigmas.double().numpy()[:-1]
    alphas = scheduler.alphas_cumprod.double().numpy()[scheduler.timesteps.numpy()]
    return np.sqrt((1 - alphas) / alphas)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("EulerDiscreteScheduler", "euler"),
        ("EulerAncestralDiscreteScheduler", "euler_ancestral"),
        ("LMSDiscreteScheduler", "lms"),
        ("DPMSolverMultistepScheduler", "dpmpp_2m"),
        ("UniPCMultistepScheduler", "uni_pc"),
        ("DDIMScheduler", "ddim"),
    ],
)
def test_levels_equal_those_of_diffusers(
    name: str, sampler: str, spacing: str, offset: int, steps: int
) -> None:
    if name == "DDIMScheduler" and spacing == "linspace":
        steps = {2: 2, 4: 4, 7: 10, 20: 28, 30: 38, 50: 112}[steps]  # it rounds to whole timesteps
    expected = _levels_of(name, steps, timestep_spacing=spacing, steps_offset=offset)
    training = training_schedule(steps_offset=offset)
    found = sigmas_for(spacing, training, steps, sampler=sampler)
    np.testing.assert_allclose(found[:-1], expected, rtol=1e-4)
    assert found[-1] == 0.0


@pytest.mark.parametrize("steps", [1, 2, 4, 6, 8, 20])
def test_consistency_models_skip_through_their_original_schedule(steps: int) -> None:
    found = sigmas_for("leading", training_schedule(), steps, sampler="lcm")
    np.testing.assert_allclose(found[:-1], _levels_of("LCMScheduler", steps), rtol=1e-4)


def test_turbo_starts_from_all_noise() -> None:
    """One step of `trailing` begins at the last timestep, for which SD-Turbo and SDXL-Turbo were made."""
    training = training_schedule()
    assert sigmas_for("trailing", training, 1) == (training.sigma_max, 0.0)


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("name", ["DPMSolverMultistepScheduler", "EulerDiscreteScheduler"])
def test_final_sigma_is_the_models_own(name: str, spacing: str) -> None:
    sampler = "euler" if name.startswith("Euler") else "dpmpp_2m"
    scheduler = getattr(diffusers, name)(
        **BETAS, timestep_spacing=spacing, steps_offset=1, final_sigmas_type="sigma_min"
    )
    scheduler.set_timesteps(10)
    expected = list(dict.fromkeys(scheduler.sigmas.double().tolist()))  # a step of no length is left out
    training = training_schedule(steps_offset=1, ends_at_least_noise=True)
    found = sigmas_for(spacing, training, 10, sampler=sampler)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert all(high > low for high, low in pairwise(found))
