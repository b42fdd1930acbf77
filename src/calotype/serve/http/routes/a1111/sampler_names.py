"""A1111's names for samplers and schedulers, and ours. Knows nothing of requests."""

from __future__ import annotations

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.spec.constants import SAMPLERS
from calotype.spec.validation_errors import short_repr

SAMPLER_NAMES = {
    "Euler": "euler",
    "Euler a": "euler_ancestral",
    "Heun": "heun",
    "DPM2": "dpm_2",
    "DPM2 a": "dpm_2_ancestral",
    "LMS": "lms",
    "DPM++ 2S a": "dpmpp_2s_ancestral",
    "DPM++ SDE": "dpmpp_sde",
    "DPM++ 2M": "dpmpp_2m",
    "DPM++ 2M SDE": "dpmpp_2m_sde",
    "DPM++ 3M SDE": "dpmpp_3m_sde",
    "DDIM": "ddim",
    "DDPM": "ddpm",
    "PLMS": "pndm",
    "UniPC": "uni_pc",
    "LCM": "lcm",
}
SCHEDULER_NAMES = {
    "uniform": "Uniform",
    "karras": "Karras",
    "exponential": "Exponential",
    "polyexponential": "Polyexponential",
    "sgm_uniform": "SGM Uniform",
    "kl_optimal": "KL Optimal",
    "align_your_steps": "Align Your Steps",
    "simple": "Simple",
    "normal": "Normal",
    "ddim": "DDIM",
    "beta": "Beta",
}
"""A1111's labels by its own names."""
AUTOMATIC = "Automatic"

_SAME_FIGURES = {"normal": "uniform", "polyexponential": "exponential"}
"""Normal counts the same timesteps as Uniform; Polyexponential has exponent 1 unless a setting changes it."""
_SCHEDULE_BY_NAME = {
    **{name: f"a1111_{_SAME_FIGURES.get(name, name)}" for name in SCHEDULER_NAMES},
    **{label.lower(): f"a1111_{_SAME_FIGURES.get(name, name)}" for name, label in SCHEDULER_NAMES.items()},
    "sgmuniform": "a1111_sgm_uniform",
    "ddim_uniform": "a1111_ddim",
}
_SCHEDULE_BY_NAME |= {schedule: schedule for schedule in _SCHEDULE_BY_NAME.values()}
_AUTOMATIC_SCHEDULERS = {
    "dpm_2": "karras",
    "dpm_2_ancestral": "karras",
    "dpmpp_2s_ancestral": "karras",
    "dpmpp_sde": "karras",
    "dpmpp_2m": "karras",
    "dpmpp_2m_sde": "exponential",
    "dpmpp_3m_sde": "exponential",
}
"""What Automatic means for a sampler; Uniform for all others."""


def automatic_scheduler(sampler: str) -> str:
    """A1111's name of the scheduler that Automatic means for one of our samplers."""
    return _AUTOMATIC_SCHEDULERS.get(sampler, "uniform")


def sampler_and_schedule(sampler: str, scheduler: str | None) -> tuple[str, str]:
    """Our sampler and schedule for theirs; ours are understood too.

    As there, `scheduler` counts before one that follows the sampler's name, also where it is Automatic.
    """
    sampler, suffix = _without_suffix(sampler)
    chosen = scheduler or suffix or AUTOMATIC
    by_name = {
        **{one: one for one in SAMPLERS},
        **{name.lower(): ours for name, ours in SAMPLER_NAMES.items()},
    }
    found = _found("sampler_name", sampler, by_name, list(SAMPLER_NAMES))
    if chosen.lower() == AUTOMATIC.lower():
        chosen = automatic_scheduler(found)
    return found, _found("scheduler", chosen, _SCHEDULE_BY_NAME, [AUTOMATIC, *SCHEDULER_NAMES.values()])


def scheduler_label(schedule: str) -> str:
    """A1111's label of one of our schedules."""
    return SCHEDULER_NAMES[schedule.removeprefix("a1111_")]


def _without_suffix(sampler: str) -> tuple[str, str | None]:
    """Old clients name sampler and scheduler in one."""
    for suffix in sorted([*_SCHEDULE_BY_NAME, AUTOMATIC.lower()], key=len, reverse=True):
        if sampler.lower().endswith(f" {suffix}"):
            return sampler[: -len(suffix) - 1], suffix
    return sampler, None


def _found(field: str, name: str, by_name: dict[str, str], shown_names: list[str]) -> str:
    if name.lower() not in by_name:
        rule = f"{short_repr(name)} is not known; {did_you_mean(name[:60], shown_names)}"
        raise RequestError([Problem(field, rule, name)])
    return by_name[name.lower()]
