"""Finds the engine that was built for a target and puts its caches to use. Knows nothing of building."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from calotype.engine.store.artefact import Artefact, artefacts, check_files, engines_dir, read
from calotype.engine.store.build import INDUCTOR, REGIONS, TRITON
from calotype.engine.store.target import Target
from calotype.engine.store.triton_cache import hand_to_triton

_log = logging.getLogger(__name__)


def use_engine(target: Target) -> Target | None:
    """Make what was compiled for the target known, before anything is compiled; what it was built for.

    None when nothing serves. A damaged engine is refused with a warning, and the work goes on without it.
    """
    for one in _candidates(target):
        try:
            description = check_files(one)
            _hand_over(one.folder, [Path(file.name) for file in description.files])
        # Whatever a cache's reader may raise: a picture can be made without.
        except Exception as error:
            fix = f"`calotype engine remove {one.key}`, then build it again"
            _log.warning("engine %s is not used: %s; %s", one.key, error, fix)
            continue
        shapes = ", ".join(str(shape) for shape in description.target.shapes)
        _log.info("engine: %s, built for %s", one.key, shapes)
        return description.target
    return None


def regions_of(target: Target) -> dict[str, Path]:
    """The compiled regions of the engine that was built for a target, by their signatures."""
    one = read(engines_dir() / target.key)
    names = [file.name for file in one.description.files] if one.description else []
    return {Path(name).stem: one.folder / name for name in names if Path(name).is_relative_to(REGIONS)}


def _candidates(target: Target) -> list[Artefact]:
    """Those that say they serve the target, with the most shapes first; then those that say nothing."""

    def num_shapes(one: Artefact) -> int:
        return len(one.description.target.shapes) if one.description else 0

    try:
        kept = [one for one in artefacts() if not one.other_format]
    except OSError as error:
        _log.warning("prepared engines are not used: %s", error)
        return []
    serving = [one for one in kept if one.description is None or one.description.target.serves(target)]
    return sorted(serving, key=num_shapes, reverse=True)


def _hand_over(folder: Path, files: list[Path]) -> None:
    """Only files that were checked."""
    kernels = [file.relative_to(TRITON) for file in files if file.is_relative_to(TRITON)]
    if kernels:
        hand_to_triton(folder / TRITON, kernels)
    if Path(INDUCTOR) in files:
        torch.compiler.load_cache_artifacts((folder / INDUCTOR).read_bytes())
