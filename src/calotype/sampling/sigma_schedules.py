"""Computes the noise levels of a run from a training schedule and a number of steps.

Each schedule is a function `(training_schedule, steps) -> sigmas`, descending and ending in 0. Names and
values are ComfyUI's, so that a saved workflow runs at the same noise levels.
"""

import math
from collections.abc import Callable, Collection
from functools import partial

from calotype.sampling.noise_schedule import TrainingSchedule
from calotype.sampling.timestep_spacing import SPACINGS, spaced

Sigmas = tuple[float, ...]
Schedule = Callable[[TrainingSchedule, int], Sigmas]

# For these, ComfyUI computes one more step and drops the smallest positive sigma; saved workflows rely on it.
SKIPS_LAST_POSITIVE_SIGMA = frozenset({"dpm_2", "dpm_2_ancestral", "uni_pc"})


def normal(training: TrainingSchedule, steps: int) -> Sigmas:
    """Evenly spaced timesteps from the last to the first, both included."""
    timesteps = evenly(len(training.sigmas) - 1.0, 0.0, steps)
    return (*(training.timestep_to_sigma(timestep) for timestep in timesteps), 0.0)


def sgm_uniform(training: TrainingSchedule, steps: int) -> Sigmas:
    """Evenly spaced timesteps from the last towards the first, which is excluded."""
    timesteps = evenly(len(training.sigmas) - 1.0, 0.0, steps + 1)[:-1]
    return (*(training.timestep_to_sigma(timestep) for timestep in timesteps), 0.0)


def karras(training: TrainingSchedule, steps: int, rho: float = 7.0) -> Sigmas:
    """Evenly spaced in sigma ** (1 / rho) (Karras et al. 2022, arXiv:2206.00364, equation 5)."""
    roots = evenly(training.sigma_max ** (1.0 / rho), training.sigma_min ** (1.0 / rho), steps)
    return (*(root**rho for root in roots), 0.0)


def exponential(training: TrainingSchedule, steps: int) -> Sigmas:
    """Evenly spaced in log sigma."""
    logarithms = evenly(math.log(training.sigma_max), math.log(training.sigma_min), steps)
    return (*(math.exp(logarithm) for logarithm in logarithms), 0.0)


def simple(training: TrainingSchedule, steps: int) -> Sigmas:
    """Every n-th training sigma, counted from the noisy end, where n may be fractional."""
    levels = len(training.sigmas)
    if steps > levels:
        raise ValueError(f"schedule 'simple' has at most {levels} steps, got {steps}; use 'normal' for more")
    stride = levels / steps
    return (*(training.sigmas[levels - 1 - int(index * stride)] for index in range(steps)), 0.0)


def ddim_uniform(training: TrainingSchedule, steps: int) -> Sigmas:
    """Every n-th training sigma, counted from timestep 1, where n is an integer.

    If n does not divide the training steps, this gives more levels than `steps`, as in ComfyUI.
    """
    stride = max(len(training.sigmas) // steps, 1)
    return (*reversed(training.sigmas[1::stride]), 0.0)


def beta(training: TrainingSchedule, steps: int, a: float = 0.6, b: float = 0.6) -> Sigmas:
    """Timesteps at quantiles of a beta distribution, dense at both ends (Lee et al. 2024, arXiv:2407.12173).

    Quantiles that round to the same timestep are used once, so many steps may give fewer sigmas.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 - scipy is loaded for this one schedule only

    last = len(training.sigmas) - 1
    quantiles = (float(betaincinv(a, b, 1.0 - index / steps)) for index in range(steps))
    timesteps = dict.fromkeys(round(quantile * last) for quantile in quantiles)
    return (*(training.sigmas[timestep] for timestep in timesteps), 0.0)


SCHEDULES: dict[str, Schedule] = {
    "normal": normal,
    "karras": karras,
    "exponential": exponential,
    "sgm_uniform": sgm_uniform,
    "simple": simple,
    "ddim_uniform": ddim_uniform,
    "beta": beta,
    "linspace": partial(spaced, "linspace"),
    "leading": partial(spaced, "leading"),
    "trailing": partial(spaced, "trailing"),
}


def sigmas_for(
    schedule: str, training: TrainingSchedule, steps: int, *, sampler: str = "euler", denoise: float = 1.0
) -> Sigmas:
    """The sigmas of a run, as ComfyUI's KSampler chooses them.

    `denoise` below 1 is image-to-image: the schedule is computed for int(steps / denoise) steps, and only its
    last `steps` run. At 0 the result is empty.
    """
    check_run(schedule, SCHEDULES, steps, denoise)
    if denoise == 0.0:
        return ()
    # The threshold is ComfyUI's: its sliders do not always reach exactly 1.
    if denoise > 0.9999:
        return _complete(schedule, training, steps, sampler)
    return _complete(schedule, training, int(steps / denoise), sampler)[-(steps + 1) :]


def check_run(schedule: str, schedules: Collection[str], steps: int, denoise: float) -> None:
    """Raise ValueError for a schedule that is not in `schedules` or numbers out of range."""
    if schedule not in schedules:
        raise ValueError(f"schedule {schedule!r} is unknown; use one of {sorted(schedules)}")
    if steps < 1:
        raise ValueError(
            f"a run needs at least 1 step, got {steps}; use denoise=0 to leave an image unchanged"
        )
    if not 0.0 <= denoise <= 1.0:
        raise ValueError(f"denoise is a fraction between 0 and 1, got {denoise}")


def _complete(schedule: str, training: TrainingSchedule, steps: int, sampler: str) -> Sigmas:
    if schedule in SPACINGS:
        return spaced(schedule, training, steps, sampler)
    if sampler not in SKIPS_LAST_POSITIVE_SIGMA:
        return SCHEDULES[schedule](training, steps)
    sigmas = SCHEDULES[schedule](training, steps + 1)
    return (*sigmas[:-2], sigmas[-1])


def evenly(start: float, end: float, count: int) -> list[float]:
    """`count` evenly spaced numbers including both ends; only the start if count is 1."""
    if count == 1:
        return [start]
    return [start + (end - start) * (index / (count - 1)) for index in range(count - 1)] + [end]
