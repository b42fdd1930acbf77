"""Builds an engine ahead of time and keeps it. Knows nothing of command lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from calotype.core.progress import Progress, Silent
from calotype.engine.artifacts.cache_key import CacheKey, cache_key_of
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.artifacts.store import (
    Artifact,
    DamagedArtifactError,
    check_files,
    engines_dir,
    locked,
    read,
    write,
)
from calotype.engine.artifacts.triton_cache import triton_cache_in
from calotype.engine.compile.aot_package import SUFFIX, read_package, write_package
from calotype.engine.compile.manager import CompileManager
from calotype.engine.compile.region import CompileRequest
from calotype.engine.device import choose_device, choose_dtype
from calotype.engine.engine import Engine
from calotype.engine.presets import build_preset
from calotype.models.model import Model, load_model
from calotype.models.resolve import resolve_model

TRITON, INDUCTOR, REGIONS = "triton", "inductor.bin", "regions"

CollectArtifacts = Callable[[Model, CacheKey, Path, Progress], None]
"""Runs a model as the target says, and leaves in the folder what was compiled for it."""


@dataclass(frozen=True)
class BuiltArtifacts:
    """An engine that is there now."""

    artefact: Artifact
    already: bool
    """Whether it was there before."""


def compile_caches(model: Model, target: CacheKey, folder: Path, progress: Progress) -> None:
    """What Triton and torch make of the target's shapes; for some presets that is nothing on a CPU."""
    runs = CompileManager({}, read_package, partial(_compiled_into, folder / REGIONS), wait=True)
    networks = build_preset(model, target.preset, runs=runs)
    engine = Engine(model, preset=target.preset, networks=networks)
    if model.device.type != "cuda":
        engine.warm_up(target.shapes, progress)
        return
    with triton_cache_in(folder / TRITON):
        engine.warm_up(target.shapes, progress)
    saved = torch.compiler.save_cache_artifacts()
    if saved is not None:
        (folder / INDUCTOR).write_bytes(saved[0])


def _compiled_into(folder: Path, order: CompileRequest) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{order.signature}{SUFFIX}"
    write_package(order, path)
    return path


def build(
    model: str = "emoji",
    *,
    preset: str = "fast",
    shapes: Sequence[Shape],
    precision: str | None = None,
    device: str | None = None,
    models_folder: Path | None = None,
    progress: Progress | None = None,
    collect: CollectArtifacts = compile_caches,
) -> BuiltArtifacts:
    """Prepare a model's architecture for shapes, or find that it has been.

    For a process of its own: what was compiled before in this one would be missing from the engine.
    """
    watcher = progress or Silent()
    chosen = choose_device(device)
    dtype = choose_dtype(precision, chosen)
    found = resolve_model(model, models=models_folder)
    with found.weights as weights:
        target = cache_key_of(weights.architecture, preset=preset, shapes=shapes, dtype=dtype, device=chosen)
        with locked(target.key, watcher):
            kept = read(engines_dir() / target.key)
            if _whole(kept):
                return BuiltArtifacts(kept, already=True)
            live = load_model(weights, found.identity, dtype=dtype, device=chosen, progress=watcher)
            made = write(
                weights.architecture.name, target, lambda folder: collect(live, target, folder, watcher)
            )
            return BuiltArtifacts(made, already=False)


def _whole(kept: Artifact) -> bool:
    try:
        check_files(kept)
    except DamagedArtifactError:
        return False
    return True
