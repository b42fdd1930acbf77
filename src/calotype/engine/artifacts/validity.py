"""Whether a kept engine can still be used here: ok, damaged or stale, and why. Knows nothing of loading."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.core.errors import NotFoundError
from calotype.engine.artifacts.cache_key import CacheKey, Device, Software, current_devices, current_software
from calotype.engine.artifacts.store import Artifact, DamagedArtifactError, State, check_files
from calotype.engine.presets import pass_names


@dataclass(frozen=True)
class Environment:
    """What this machine has."""

    software: Software
    devices: list[Device]


def current_environment() -> Environment:
    return Environment(current_software(), current_devices())


@dataclass(frozen=True)
class Validity:
    """What was found."""

    key: str
    state: State
    reason: str | None = None
    """None when all is well."""


def check_validity(one: Artifact, machine: Environment) -> Validity:
    """Every file is read."""
    if one.other_format:
        return Validity(one.key, "stale", one.unreadable)
    try:
        description = check_files(one)
    except DamagedArtifactError as error:
        return Validity(one.key, "damaged", str(error))
    reasons = _out_of_date(description.target, machine)
    return Validity(one.key, "stale", "; ".join(reasons)) if reasons else Validity(one.key, "ok")


def _out_of_date(target: CacheKey, machine: Environment) -> list[str]:
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
