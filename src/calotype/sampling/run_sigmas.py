"""Computes the sigmas of a run by the rules of the program that defines the schedule: ComfyUI or A1111."""

from torch import Tensor

from calotype.sampling.a1111_schedules import (
    A1111_SCHEDULES,
    a1111_options,
    a1111_sigmas,
    starts_from_sigma,
)
from calotype.sampling.noise import starts_from_pure_noise
from calotype.sampling.noise_schedule import TrainingSchedule
from calotype.sampling.sigma_schedules import SCHEDULES as COMFYUI_SCHEDULES
from calotype.sampling.sigma_schedules import Schedule, Sigmas, check_run, sigmas_for

SCHEDULES: dict[str, Schedule] = {**COMFYUI_SCHEDULES, **A1111_SCHEDULES}


def sigmas_of_run(
    schedule: str,
    training: TrainingSchedule,
    steps: int,
    *,
    sampler: str = "euler",
    denoise: float = 1.0,
    family: str = "sd1",
) -> Sigmas:
    """The sigmas of a run; `denoise` below 1 is image-to-image, and 0 gives an empty run.

    `family` is the model's: one of A1111's schedules has different values for `sdxl`.
    """
    check_run(schedule, SCHEDULES, steps, denoise)
    if schedule not in A1111_SCHEDULES:
        return sigmas_for(schedule, training, steps, sampler=sampler, denoise=denoise)
    if denoise == 0.0:
        return ()
    return a1111_sigmas(schedule, training, steps, sampler=sampler, denoise=denoise, family=family)


def options_of_run(schedule: str, sampler: str) -> dict[str, int | str]:
    """The sampler options that the schedule's program uses."""
    return a1111_options(sampler) if schedule in A1111_SCHEDULES else {}


def start_of_run(schedule: str, sampler: str, noise: Tensor, sigma: float) -> Tensor:
    """The initial latent of text-to-image at the first sigma of a run."""
    if schedule in A1111_SCHEDULES and starts_from_sigma(sampler):
        return noise * sigma
    return starts_from_pure_noise(noise, sigma)
