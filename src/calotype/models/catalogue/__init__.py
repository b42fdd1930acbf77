"""The models that Calotype supports by name: one JSON file each, with the published configuration."""

import json
from functools import cache
from importlib.resources import files

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.models.architecture import Architecture


@cache
def names() -> tuple[str, ...]:
    """Every name in the catalogue."""
    entries = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in entries if name.endswith(".json")))


@cache
def architecture(name: str) -> Architecture:
    """The published configuration of a known model."""
    if name not in names():
        raise NotFoundError(f"no model {name!r} in the catalogue; {did_you_mean(name, names())}")
    return Architecture.from_dict(json.loads((files(__package__) / f"{name}.json").read_text("utf-8")))
