"""A1111's names for samplers and schedules, and ours. Knows nothing of requests."""

from __future__ import annotations

from calotype.core.errors import Problem, RequestError, near_matches
from calotype.spec.names import SAMPLERS, SCHEDULES
from calotype.spec.problems import shown

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
SCHEDULE_NAMES = {
    "Normal": "normal",
    "Uniform": "normal",
    "Karras": "karras",
    "Exponential": "exponential",
    "SGM Uniform": "sgm_uniform",
    "Simple": "simple",
    "DDIM": "ddim_uniform",
    "Beta": "beta",
    # Not there, but ours go by a name as well.
    "Linspace": "linspace",
    "Leading": "leading",
    "Trailing": "trailing",
}
AUTOMATIC = "Automatic"
_KARRAS_BY_THEMSELVES = ("DPM2", "DPM++")
_SUFFIXES = ("Karras", "Exponential")
"""Old clients name sampler and schedule in one."""

SAMPLER_NAMES_BY_OURS = {ours: theirs for theirs, ours in SAMPLER_NAMES.items()}


def sampler_and_schedule(sampler: str, scheduler: str | None) -> tuple[str, str]:
    """Our sampler and schedule for theirs; ours are understood too."""
    sampler, suffix = _without_suffix(sampler)
    chosen = scheduler if scheduler and not _same(scheduler, AUTOMATIC) else suffix
    found = _found("sampler_name", sampler, SAMPLER_NAMES, SAMPLERS)
    if chosen:
        return found, _found("scheduler", chosen, SCHEDULE_NAMES, SCHEDULES)
    theirs = SAMPLER_NAMES_BY_OURS[found]
    return found, "karras" if theirs.startswith(_KARRAS_BY_THEMSELVES) else "normal"


def _without_suffix(sampler: str) -> tuple[str, str | None]:
    for suffix in _SUFFIXES:
        if sampler.lower().endswith(f" {suffix.lower()}"):
            return sampler[: -len(suffix) - 1], suffix
    return sampler, None


def _found(field: str, name: str, theirs: dict[str, str], ours: tuple[str, ...]) -> str:
    by_name = {**{one: one for one in ours}, **{known.lower(): value for known, value in theirs.items()}}
    if name.lower() not in by_name:
        rule = f"{shown(name)} is not known; {near_matches(name[:60], theirs)}"
        raise RequestError([Problem(field, rule, name)])
    return by_name[name.lower()]


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()
