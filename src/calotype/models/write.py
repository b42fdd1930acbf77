"""Weights from anywhere, written as a diffusers folder or as a single original file. One tensor in memory at a time.

A folder is written beside its place and moved there when complete, so an interrupted run leaves nothing half-made.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import written_whole
from calotype.core.progress import Progress, Silent
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.files.sharded import write_sharded
from calotype.models.folder_layout import write_layout
from calotype.models.naming.original import correspondences
from calotype.models.single_file import ARCHITECTURE_KEY
from calotype.models.weights import EXTRA_STEM, NamedTensors, TensorSpec, Weights, part_stem

DEFAULT_SHARD_BYTES = 10 * 10**9


def write_folder(
    weights: Weights,
    folder: Path,
    *,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    keep_extra: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write the diffusers layout. `dtype` converts; otherwise every tensor keeps its own."""
    refuse_existing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    architecture = weights.architecture
    progress = progress or Silent()
    progress.start("writing", sum(len(weights.specs(part)) for part in architecture.parts()))
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        write_layout(partial, architecture)
        for part in architecture.parts():
            specs = {name: _cast(spec, dtype) for name, spec in weights.specs(part).items()}

            def produce(name: str, part: str = part, specs: dict[str, TensorSpec] = specs) -> Tensor:
                progress.advance()
                return weights.read(part, name).to(specs[name].dtype)

            write_sharded(partial / part, part_stem(part), specs, produce, max_shard_bytes, {"format": "pt"})
        extra = weights.extra() if keep_extra else None
        if extra is not None:
            _write_extra(partial / f"{EXTRA_STEM}.safetensors", extra)
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_single_file(
    weights: Weights,
    file: Path,
    *,
    dtype: torch.dtype | None = None,
    keep_extra: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write one original-layout file: safetensors, or an old-style ckpt if the name ends so."""
    refuse_existing(file)
    architecture = weights.architecture
    shapes = {part: architecture.tensor_shapes(part) for part in architecture.parts()}
    specs_by_part = {part: weights.specs(part) for part in architecture.parts()}
    rows = {row.original: row for row in correspondences(architecture)}
    specs = {}
    for name, row in rows.items():
        part, piece = row.pieces[0]
        specs[name] = _cast(TensorSpec(specs_by_part[part][piece].dtype, row.original_shape(shapes)), dtype)
    extra = weights.extra() if keep_extra else None
    if extra is not None:
        specs |= {name: extra.spec(name) for name in extra.names()}
    progress = progress or Silent()
    progress.start("writing", len(specs))

    def produce(name: str) -> Tensor:
        progress.advance()
        if name in rows:
            return rows[name].to_original(weights.read).to(specs[name].dtype)
        assert extra is not None
        return extra.read(name)

    if file.suffix == ".ckpt":
        _write_ckpt(file, {name: produce(name) for name in specs})
    else:
        description = json.dumps(architecture.as_dict())
        write_safetensors(file, specs, produce, {"format": "pt", ARCHITECTURE_KEY: description})


def _write_ckpt(file: Path, tensors: dict[str, Tensor]) -> None:
    with written_whole(file) as out:
        torch.save({"state_dict": {name: tensor.contiguous() for name, tensor in tensors.items()}}, out)


def _write_extra(file: Path, extra: NamedTensors) -> None:
    write_safetensors(file, {name: extra.spec(name) for name in extra.names()}, extra.read, {"format": "pt"})


def _cast(spec: TensorSpec, dtype: torch.dtype | None) -> TensorSpec:
    return spec if dtype is None or not spec.dtype.is_floating_point else TensorSpec(dtype, spec.shape)


def refuse_existing(target: Path) -> None:
    """Nothing is ever overwritten: a model is too large to lose by a slip."""
    if target.exists():
        raise RequestError([Problem("destination", f"{target} exists already; choose another name or remove it")])
