"""Checks whether a stored engine is usable here: ok, damaged or stale, and why."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.core.errors import NotFoundError
from calotype.engine.artifacts.cache_key import CacheKey, Device, Software, current_devices, current_software
from calotype.engine.artifacts.store import Artifact, DamagedArtifactError, State, check_files
from calotype.engine.presets import pass_names


@dataclass(frozen=True)
class Environment:
    """Software and devices of this machine."""

    software: Software
    devices: list[Device]


def current_environment() -> Environment:
    return Environment(current_software(), current_devices())


@dataclass(frozen=True)
class Validity:
    """The result of a check."""

    key: str
    state: State
    reason: str | None = None
    """None if the state is ok."""


def check_validity(artifact: Artifact, environment: Environment) -> Validity:
    """Check an engine. Reads every file."""
    if artifact.other_format:
        return Validity(artifact.key, "stale", artifact.unreadable)
    try:
        description = check_files(artifact)
    except DamagedArtifactError as error:
        return Validity(artifact.key, "damaged", str(error))
    reasons = _out_of_date(description.target, environment)
    return Validity(artifact.key, "stale", "; ".join(reasons)) if reasons else Validity(artifact.key, "ok")


def _out_of_date(key: CacheKey, environment: Environment) -> list[str]:
    was, now = key.software.model_dump(), environment.software.model_dump()
    reasons = [
        f"built with {name} {was[name]}, here is {now[name]}" for name in was if was[name] != now[name]
    ]
    if key.device not in environment.devices:
        capability = f" ({key.device.capability})" if key.device.capability else ""
        reasons.append(f"built for {key.device.name}{capability}, which this machine does not have")
    try:
        passes = pass_names(key.preset, "cpu" if key.device.capability is None else "cuda")
    except NotFoundError:
        reasons.append(f"preset {key.preset!r} no longer exists")
    else:
        if passes != key.passes:
            reasons.append(f"preset {key.preset!r} has other passes now")
    return reasons
