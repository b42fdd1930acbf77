"""Computes the sigmas of A1111's web UI (version 1.10) for a sampler, a scheduler and a number of steps.

They differ from ComfyUI's in the scheduler `beta`, in which samplers drop the second-to-last sigma, in the
samplers that use timesteps, in `lcm`, and in how image-to-image shortens a schedule.
"""

import math
from collections.abc import Callable

from calotype.sampling.noise_schedule import TrainingSchedule
from calotype.sampling.sigma_schedules import (
    Schedule,
    Sigmas,
    ddim_uniform,
    evenly,
    exponential,
    karras,
    normal,
    sgm_uniform,
    simple,
)

DROPS_SECOND_TO_LAST_SIGMA = frozenset({"dpm_2", "dpm_2_ancestral", "dpmpp_3m_sde"})
COUNTS_IN_TIMESTEPS = frozenset({"ddim", "pndm", "uni_pc"})
"""Samplers that ignore the scheduler: their steps are whole numbers of training timesteps."""

_ALIGN_YOUR_STEPS = (14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029)
_ALIGN_YOUR_STEPS_SDXL = (14.615, 6.315, 3.771, 2.181, 1.342, 0.862, 0.555, 0.380, 0.234, 0.113, 0.029)
_LCM_TIMESTEPS = 50
_UNI_PC_ORDER = 3


def kl_optimal(training: TrainingSchedule, steps: int) -> Sigmas:
    """Evenly spaced in the arctangent of sigma (Sabour et al. 2024, arXiv:2404.14507, theorem 3.1).

    The last sigma is the smallest that the model was trained on, not 0.
    """
    angles = evenly(math.atan(training.sigma_max), math.atan(training.sigma_min), steps + 1)
    return tuple(math.tan(angle) for angle in angles)


def beta(training: TrainingSchedule, steps: int, a: float = 0.6, b: float = 0.6) -> Sigmas:
    """Sigmas at quantiles of a beta distribution between the smallest and the largest training sigma.

    ComfyUI uses timesteps at these quantiles instead.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 - scipy is loaded for this one schedule only

    low, high = training.sigma_min, training.sigma_max
    quantiles = (float(betaincinv(a, b, share)) for share in evenly(1.0, 0.0, steps))
    return (*(low + quantile * (high - low) for quantile in quantiles), 0.0)


def align_your_steps(_training: TrainingSchedule, steps: int) -> Sigmas:
    """Sigmas optimized for SD 1.5 (Sabour et al. 2024, arXiv:2404.14507), interpolated to `steps`."""
    return _interpolated(_ALIGN_YOUR_STEPS, steps)


def align_your_steps_sdxl(_training: TrainingSchedule, steps: int) -> Sigmas:
    """The same for SDXL."""
    return _interpolated(_ALIGN_YOUR_STEPS_SDXL, steps)


A1111_SCHEDULES: dict[str, Schedule] = {
    "a1111_uniform": normal,
    "a1111_karras": karras,
    "a1111_exponential": exponential,
    "a1111_sgm_uniform": sgm_uniform,
    "a1111_kl_optimal": kl_optimal,
    "a1111_align_your_steps": align_your_steps,
    "a1111_simple": simple,
    "a1111_ddim": ddim_uniform,
    "a1111_beta": beta,
}


def a1111_sigmas(
    schedule: str,
    training: TrainingSchedule,
    steps: int,
    *,
    sampler: str = "euler",
    denoise: float = 1.0,
    family: str = "sd1",
) -> Sigmas:
    """The sigmas of a run, as A1111 chooses them.

    `denoise` below 1 is image-to-image: the schedule is computed for `steps`, and only its end runs.
    """
    if sampler in COUNTS_IN_TIMESTEPS:
        return _timestep_sigmas(training, steps, sampler, denoise)
    levels = _lcm_levels(training) if sampler == "lcm" else training
    formula = A1111_SCHEDULES[schedule]
    if formula is align_your_steps and family == "sdxl":
        formula = align_your_steps_sdxl
    if sampler in DROPS_SECOND_TO_LAST_SIGMA:
        sigmas = formula(levels, steps + 1)
        sigmas = (*sigmas[:-2], sigmas[-1])
    else:
        sigmas = formula(levels, steps)
    return sigmas if denoise > 0.9999 else sigmas[steps - _steps_back(steps, denoise) - 1 :]


def a1111_options(sampler: str) -> dict[str, int | str]:
    """A1111's sampler options where they differ from Calotype's defaults."""
    return {"order": _UNI_PC_ORDER, "solver": "bh1"} if sampler == "uni_pc" else {}


def starts_from_sigma(sampler: str) -> bool:
    """Whether A1111 multiplies the initial noise by the first sigma and not by √(sigma² + 1)."""
    return sampler not in COUNTS_IN_TIMESTEPS


def _steps_back(steps: int, denoise: float) -> int:
    return int(min(denoise, 0.999) * steps)


def _timestep_sigmas(training: TrainingSchedule, steps: int, sampler: str, denoise: float) -> Sigmas:
    """The sigmas of every n-th timestep from 1 on; a run ends at timestep 1, not at sigma 0.

    In image-to-image, A1111 adds the noise of the timestep after the first one it evaluates. Here both are
    the same timestep.
    """
    last = len(training.sigmas) - 1
    stride = max((last + 1) // steps, 1)
    timesteps = [min(timestep + 1, last) for timestep in range(0, last + 1, stride)]
    count = len(timesteps) if denoise > 0.9999 else _steps_back(steps, denoise)
    least = _UNI_PC_ORDER if sampler == "uni_pc" else 2
    if count < least:
        raise ValueError(
            f"{steps} steps at strength {denoise:g} are too few for A1111's {sampler}: "
            f"steps × strength must be {least} or more; use more steps"
        )
    if sampler == "uni_pc":
        start = last if denoise > 0.9999 else timesteps[count - 1]
        return tuple(_sigma_by_signal(training, timestep) for timestep in evenly(start, 0.0, count + 1))
    return tuple(training.sigmas[timestep] for timestep in sorted(set(timesteps[:count]), reverse=True))


def _sigma_by_signal(training: TrainingSchedule, timestep: float) -> float:
    """The sigma of a timestep, interpolated linearly in the logarithm of the signal's amplitude."""
    low = min(math.floor(timestep), len(training.sigmas) - 2)
    fraction = timestep - low
    logs = [math.log1p(sigma**2) for sigma in training.sigmas[low : low + 2]]
    return math.sqrt(math.expm1((1.0 - fraction) * logs[0] + fraction * logs[1]))


def _lcm_levels(training: TrainingSchedule) -> TrainingSchedule:
    """The 50 timesteps that latent consistency models are distilled at, including the last."""
    stride = max(len(training.sigmas) // _LCM_TIMESTEPS, 1)
    selected = training.sigmas[::-stride][:_LCM_TIMESTEPS]
    return TrainingSchedule(tuple(reversed(selected)))


def _interpolated(levels: Sigmas, steps: int) -> Sigmas:
    """`steps` levels at even positions along the given ones, interpolated linearly in log sigma.

    For a single step A1111 uses the lowest level, which cannot produce an image; here it is the highest.
    """
    at = _by_position(levels)
    return (*(at(position) for position in evenly(0.0, len(levels) - 1.0, steps)), 0.0)


def _by_position(levels: Sigmas) -> Callable[[float], float]:
    def at(position: float) -> float:
        low = min(math.floor(position), len(levels) - 2)
        fraction = position - low
        return levels[low] ** (1.0 - fraction) * levels[low + 1] ** fraction

    return at
