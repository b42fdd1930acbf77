"""Computes the timestep spacings of diffusers' schedulers: `linspace`, `leading` and `trailing`.

A model's scheduler configuration names one of them; a model distilled to few steps works only at the
timesteps it was distilled with. The values equal those of diffusers' scheduler for each sampler.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from calotype.sampling.noise_schedule import TrainingSchedule

Spacing = Literal["linspace", "leading", "trailing"]
SPACINGS: tuple[Spacing, ...] = get_args(Spacing)

ONE_MORE = frozenset({"dpmpp_2m", "dpmpp_2m_sde", "dpmpp_3m_sde", "uni_pc"})
"""Samplers whose diffusers schedulers compute one more timestep and drop the last."""
LCM_ORIGINAL_STEPS = 50
"""Steps of the schedule that latent consistency models are distilled with; runs use a subset of them."""


def spaced(
    spacing: Spacing, training: TrainingSchedule, steps: int, sampler: str = "euler"
) -> tuple[float, ...]:
    """Sigmas at the timesteps that diffusers chooses, then the model's final sigma."""
    last = len(training.sigmas) - 1
    sigmas: list[float] = []
    for timestep in _timesteps(spacing, last + 1, steps, training.steps_offset, sampler):
        sigma = _linear(training, min(max(timestep, 0.0), last))
        # With more steps than timesteps, or an offset beyond the last, each timestep is used once.
        if not sigmas or sigma < sigmas[-1]:
            sigmas.append(sigma)
    if sigmas[-1] <= training.final_sigma and len(sigmas) > 1:
        return tuple(sigmas)
    return (*sigmas, training.final_sigma if sigmas[-1] > training.final_sigma else 0.0)


def _timesteps(spacing: Spacing, count: int, steps: int, offset: int, sampler: str) -> list[float]:
    if sampler == "lcm":
        return _consistency_timesteps(count, steps)
    extra = 1 if sampler in ONE_MORE else 0
    if spacing == "linspace":
        if steps + extra == 1:
            # diffusers starts at 0 here, which would do nothing; a single step must start from pure noise.
            return [count - 1.0]
        interval = (count - 1) / (steps + extra - 1)
        spaced_timesteps = [index * interval for index in range(steps + extra)][::-1][:steps]
        return [float(round(timestep)) for timestep in spaced_timesteps] if extra else spaced_timesteps
    if spacing == "leading":
        stride = max(count // (steps + extra), 1)
        return [float(index * stride + offset) for index in range(steps + extra)][::-1][:steps]
    return [float(round(count - index * count / steps) - 1) for index in range(steps)]


def _consistency_timesteps(count: int, steps: int) -> list[float]:
    """Evenly spaced timesteps of the original schedule, from its noisy end."""
    original = min(max(LCM_ORIGINAL_STEPS, steps), count)
    stride = count // original
    timesteps = [(index + 1) * stride - 1 for index in range(original)][::-1]
    return [float(timesteps[math.floor(index * original / steps)]) for index in range(min(steps, original))]


def _linear(training: TrainingSchedule, timestep: float) -> float:
    """The sigma of a fractional timestep; diffusers interpolates sigma itself, not its logarithm."""
    low = math.floor(timestep)
    fraction = timestep - low
    if fraction == 0.0:
        return training.sigmas[low]
    return (1.0 - fraction) * training.sigmas[low] + fraction * training.sigmas[low + 1]
