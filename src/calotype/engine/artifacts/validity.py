"""Whether a kept engine can still be used here: ok, damaged or stale, and why. Knows nothing of loading."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.core.errors import NotFoundError
from calotype.engine.artifacts.cache_key import Device, Software, Target, devices_here, software_here
from calotype.engine.artifacts.store import Artefact, DamagedError, State, check_files
from calotype.engine.presets import pass_names


@dataclass(frozen=True)
class Here:
    """What this machine has."""

    software: Software
    devices: list[Device]


def here() -> Here:
    return Here(software_here(), devices_here())


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    key: str
    state: State
    reason: str | None = None
    """None when all is well."""


def verdict(one: Artefact, machine: Here) -> Verdict:
    """Every file is read."""
    if one.other_format:
        return Verdict(one.key, "stale", one.unreadable)
    try:
        description = check_files(one)
    except DamagedError as error:
        return Verdict(one.key, "damaged", str(error))
    reasons = _out_of_date(description.target, machine)
    return Verdict(one.key, "stale", "; ".join(reasons)) if reasons else Verdict(one.key, "ok")


def _out_of_date(target: Target, machine: Here) -> list[str]:
    was, now = target.software.model_dump(), machine.software.model_dump()
    reasons = [
        f"built with {name} {was[name]}, here is {now[name]}" for name in was if was[name] != now[name]
    ]
    if target.device not in machine.devices:
        capability = f" ({target.device.capability})" if target.device.capability else ""
        reasons.append(f"built for {target.device.name}{capability}, which is not here")
    try:
        passes = pass_names(target.preset, "cpu" if target.device.capability is None else "cuda")
    except NotFoundError:
        reasons.append(f"there is no preset {target.preset!r} any more")
    else:
        if passes != target.passes:
            reasons.append(f"preset {target.preset!r} has other passes now")
    return reasons
