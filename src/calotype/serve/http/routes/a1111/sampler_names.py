"""Maps A1111's names of samplers and schedulers to Calotype's."""

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
"""A1111's scheduler labels by name."""
AUTOMATIC = "Automatic"

_SAME_SCHEDULE = {"normal": "uniform", "polyexponential": "exponential"}
"""Normal uses the same timesteps as Uniform; Polyexponential has exponent 1 unless a setting changes it."""
_SCHEDULE_BY_NAME = {
    **{name: f"a1111_{_SAME_SCHEDULE.get(name, name)}" for name in SCHEDULER_NAMES},
    **{label.lower(): f"a1111_{_SAME_SCHEDULE.get(name, name)}" for name, label in SCHEDULER_NAMES.items()},
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
"""The scheduler that Automatic selects for a sampler; Uniform for all others."""


def automatic_scheduler(sampler: str) -> str:
    """Return A1111's name of the scheduler that Automatic selects for a Calotype sampler."""
    return _AUTOMATIC_SCHEDULERS.get(sampler, "uniform")


def sampler_and_schedule(sampler: str, scheduler: str | None) -> tuple[str, str]:
    """Return Calotype's sampler and schedule for A1111's names; accepts Calotype's names too.

    As in A1111, `scheduler` overrides a scheduler in the sampler's name, even if it is Automatic.
    """
    sampler, suffix = _without_suffix(sampler)
    chosen = scheduler or suffix or AUTOMATIC
    by_name = {
        **{name: name for name in SAMPLERS},
        **{name.lower(): value for name, value in SAMPLER_NAMES.items()},
    }
    ours = _look_up("sampler_name", sampler, by_name, list(SAMPLER_NAMES))
    if chosen.lower() == AUTOMATIC.lower():
        chosen = automatic_scheduler(ours)
    return ours, _look_up("scheduler", chosen, _SCHEDULE_BY_NAME, [AUTOMATIC, *SCHEDULER_NAMES.values()])


def scheduler_label(schedule: str) -> str:
    """Return A1111's label of a Calotype schedule."""
    return SCHEDULER_NAMES[schedule.removeprefix("a1111_")]


def _without_suffix(sampler: str) -> tuple[str, str | None]:
    """Split a name: old clients append the scheduler to the sampler."""
    for suffix in sorted([*_SCHEDULE_BY_NAME, AUTOMATIC.lower()], key=len, reverse=True):
        if sampler.lower().endswith(f" {suffix}"):
            return sampler[: -len(suffix) - 1], suffix
    return sampler, None


def _look_up(field: str, name: str, by_name: dict[str, str], known_names: list[str]) -> str:
    if name.lower() not in by_name:
        rule = f"{short_repr(name)} is not known; {did_you_mean(name[:60], known_names)}"
        raise RequestError([Problem(field, rule, name)])
    return by_name[name.lower()]
