"""Builds an engine ahead of time and stores its artifacts."""

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
"""Runs a model as the cache key says, and writes the compiled artifacts to the folder."""


@dataclass(frozen=True)
class BuiltArtifacts:
    """The result of a build."""

    artefact: Artifact
    already: bool
    """Whether it existed before."""


def compile_caches(model: Model, cache_key: CacheKey, folder: Path, progress: Progress) -> None:
    """Collect what Triton and torch compile for the key's shapes; nothing for some presets on a CPU."""
    runs = CompileManager({}, read_package, partial(_compile_into, folder / REGIONS), wait=True)
    networks = build_preset(model, cache_key.preset, runs=runs)
    engine = Engine(model, preset=cache_key.preset, networks=networks)
    if model.device.type != "cuda":
        engine.warm_up(cache_key.shapes, progress)
        return
    with triton_cache_in(folder / TRITON):
        engine.warm_up(cache_key.shapes, progress)
    saved = torch.compiler.save_cache_artifacts()
    if saved is not None:
        (folder / INDUCTOR).write_bytes(saved[0])


def _compile_into(folder: Path, compile_request: CompileRequest) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{compile_request.signature}{SUFFIX}"
    write_package(compile_request, path)
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
    """Build an engine for a model's architecture and shapes, unless it exists.

    Run this in a process of its own: artifacts that this process compiled before would be missing.
    """
    reporter = progress or Silent()
    chosen = choose_device(device)
    dtype = choose_dtype(precision, chosen)
    found = resolve_model(model, models=models_folder)
    with found.weights as weights:
        cache_key = cache_key_of(
            weights.architecture, preset=preset, shapes=shapes, dtype=dtype, device=chosen
        )
        with locked(cache_key.key, reporter):
            existing = read(engines_dir() / cache_key.key)
            if _is_intact(existing):
                return BuiltArtifacts(existing, already=True)
            live = load_model(weights, found.identity, dtype=dtype, device=chosen, progress=reporter)
            artifact = write(
                weights.architecture.name,
                cache_key,
                lambda folder: collect(live, cache_key, folder, reporter),
            )
            return BuiltArtifacts(artifact, already=False)


def _is_intact(existing: Artifact) -> bool:
    try:
        check_files(existing)
    except DamagedArtifactError:
        return False
    return True
