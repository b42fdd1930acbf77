"""Finds the engines built for a cache key and installs their caches."""

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
    """The artifacts of all matching engines; each may have been built for other shapes."""

    shapes: tuple[Shape, ...] = ()
    regions: Mapping[str, Path] = field(default_factory=dict)
    """Compiled regions by signature."""


def use_artifacts(cache_key: CacheKey) -> FoundArtifacts:
    """Install the artifacts that fit the cache key, of any shape, before anything is compiled.

    A damaged engine is skipped with a warning.
    """
    shapes: set[Shape] = set()
    regions: dict[str, Path] = {}
    for artifact in _candidates(cache_key):
        try:
            description = check_files(artifact)
            _install(artifact.folder, [Path(file.name) for file in description.files])
        # Any error of a cache's reader: inference works without it.
        except Exception as error:
            fix = f"`calotype engine remove {artifact.key}`, then build it again"
            _log.warning("engine %s is not used: %s; %s", artifact.key, error, fix)
            continue
        built_for = description.target.shapes
        _log.info("engine: %s, built for %s", artifact.key, ", ".join(str(shape) for shape in built_for))
        shapes.update(built_for)
        regions.update(_regions(artifact, description))
    return FoundArtifacts(tuple(sorted(shapes)), regions)


def _regions(artifact: Artifact, description: Description) -> dict[str, Path]:
    names = [Path(file.name) for file in description.files]
    return {name.stem: artifact.folder / name for name in names if name.is_relative_to(REGIONS)}


def _candidates(cache_key: CacheKey) -> list[Artifact]:
    """Artifacts that fit the key, and those without a readable description."""
    try:
        artifacts = [each for each in list_artifacts() if not each.other_format]
    except OSError as error:
        _log.warning("prepared engines are not used: %s", error)
        return []
    return [
        each for each in artifacts if each.description is None or each.description.target.serves(cache_key)
    ]


def _install(folder: Path, files: list[Path]) -> None:
    """Install only files that were checked."""
    kernels = [file.relative_to(TRITON) for file in files if file.is_relative_to(TRITON)]
    if kernels:
        install_triton_cache(folder / TRITON, kernels)
    if Path(INDUCTOR) in files:
        torch.compiler.load_cache_artifacts((folder / INDUCTOR).read_bytes())
