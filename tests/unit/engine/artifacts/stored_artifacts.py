"""Engines of a shrunk model with stand-ins for what a compiler leaves behind. Knows nothing of any test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from calotype.core.progress import Progress, Silent
from calotype.engine.artifacts.build import INDUCTOR, TRITON, BuiltArtifacts, build
from calotype.engine.artifacts.cache_key import CacheKey, cache_key_of
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.artifacts.store import engines_dir, list_artifacts, locked, write
from calotype.engine.artifacts.validity import Validity, check_validity, current_environment
from calotype.models.model import Model
from tests.small_models import shrunk

SMALL, WIDE = Shape(64, 64), Shape(128, 64, 2)
KERNEL = f"{TRITON}/ABC/kernel.cubin"
LIST = f"{TRITON}/ABC/__grp__kernel.json"


def target(*shapes: Shape, preset: str = "fast", **changes: Any) -> CacheKey:
    """Of a shrunk model on this machine's CPU."""
    found = cache_key_of(
        shrunk("emoji"), preset=preset, shapes=shapes, dtype=torch.float32, device=torch.device("cpu")
    )
    return found.model_copy(update=changes)


def compiled(folder: Path) -> None:
    """What a compiler would leave."""
    (folder / KERNEL).parent.mkdir(parents=True)
    (folder / KERNEL).write_bytes(b"machine code" * 50)
    (folder / LIST).write_text(json.dumps({"child_paths": {"kernel.cubin": "kernel.cubin"}}))
    (folder / INDUCTOR).write_bytes(b"graphs")


def collected(model: Model, wanted: CacheKey, folder: Path, progress: Progress) -> None:
    """In the place of a GPU's compilers."""
    compiled(folder)


def keep(wanted: CacheKey) -> None:
    """Keep an engine without a model."""
    with locked(wanted.key):
        write("shrunk-emoji", wanted, compiled)


def built(model: Path, *shapes: Shape, progress: Progress | None = None, **options: Any) -> BuiltArtifacts:
    given = {"collect": collected, "device": "cpu", "preset": "fast", **options}
    return build(str(model), shapes=shapes or (SMALL,), progress=progress or Silent(), **given)


def verdicts() -> list[Validity]:
    machine = current_environment()
    return [check_validity(one, machine) for one in list_artifacts()]


def leftovers() -> Sequence[str]:
    """What is there beside engines."""
    places = engines_dir().iterdir() if engines_dir().is_dir() else ()
    return sorted(place.name for place in places if place.name[0] == "." and place.name != ".locks")
