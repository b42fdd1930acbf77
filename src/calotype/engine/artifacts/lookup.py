"""Finds the engines that were built for a target and puts their caches to use. Knows nothing of building."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from calotype.engine.artifacts.build import INDUCTOR, REGIONS, TRITON
from calotype.engine.artifacts.cache_key import CacheKey
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.artifacts.store import Artifact, Description, check_files, list_artifacts
from calotype.engine.artifacts.triton_cache import install_triton_cache

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundArtifacts:
    """What was built before, all engines together: each may have been built for other shapes."""

    shapes: tuple[Shape, ...] = ()
    regions: Mapping[str, Path] = field(default_factory=dict)
    """Compiled regions by their signatures."""


def use_artifacts(target: CacheKey) -> FoundArtifacts:
    """Make what was compiled for the target known, whatever its shapes, before anything is compiled.

    A damaged engine is refused with a warning, and the work goes on without it.
    """
    shapes: set[Shape] = set()
    regions: dict[str, Path] = {}
    for one in _candidates(target):
        try:
            description = check_files(one)
            _hand_over(one.folder, [Path(file.name) for file in description.files])
        # Whatever a cache's reader may raise: a picture can be made without.
        except Exception as error:
            fix = f"`calotype engine remove {one.key}`, then build it again"
            _log.warning("engine %s is not used: %s; %s", one.key, error, fix)
            continue
        built_for = description.target.shapes
        _log.info("engine: %s, built for %s", one.key, ", ".join(str(shape) for shape in built_for))
        shapes.update(built_for)
        regions.update(_regions(one, description))
    return FoundArtifacts(tuple(sorted(shapes)), regions)


def _regions(one: Artifact, description: Description) -> dict[str, Path]:
    names = [Path(file.name) for file in description.files]
    return {name.stem: one.folder / name for name in names if name.is_relative_to(REGIONS)}


def _candidates(target: CacheKey) -> list[Artifact]:
    """Those that say they serve the target, and those that say nothing."""
    try:
        kept = [one for one in list_artifacts() if not one.other_format]
    except OSError as error:
        _log.warning("prepared engines are not used: %s", error)
        return []
    return [one for one in kept if one.description is None or one.description.target.serves(target)]


def _hand_over(folder: Path, files: list[Path]) -> None:
    """Only files that were checked."""
    kernels = [file.relative_to(TRITON) for file in files if file.is_relative_to(TRITON)]
    if kernels:
        install_triton_cache(folder / TRITON, kernels)
    if Path(INDUCTOR) in files:
        torch.compiler.load_cache_artifacts((folder / INDUCTOR).read_bytes())
