"""Writes weights as a diffusers folder or as a single original file.

It holds one tensor in memory at a time, except for the old ckpt format, which torch writes as a whole. Output
goes to a temporary name and is renamed when complete, so an interrupted run leaves no partial output.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write, name_full_disk
from calotype.core.progress import Progress, Silent
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.diffusers_layout import write_layout
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.files.sharded import write_sharded
from calotype.models.json_file import write_json
from calotype.models.key_mapping.ldm import key_mappings
from calotype.models.single_file import (
    ARCHITECTURE_KEY,
    CATALOGUE_NAME,
    PREDICTION_KEY,
    V_MARK,
    ZERO_SNR_MARK,
)
from calotype.models.weights import EXTRA_STEM, TensorSpec, Weights, part_stem

DEFAULT_SHARD_BYTES = 10 * 10**9
FORMAT = {"format": "pt"}
"""Metadata that transformers requires of a safetensors file with torch tensors."""
SINGLE_FILE_SUFFIXES = (".safetensors", ".ckpt")


def write_folder(
    weights: Weights,
    folder: Path,
    *,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    keep_extra: bool = True,
    progress: Progress | None = None,
    metadata: Mapping[str, str] = FORMAT,
) -> None:
    """Write the diffusers layout. `dtype` converts; otherwise every tensor keeps its own.

    `metadata` goes into the header of every file of weights.
    """
    reporter = progress or Silent()
    parts = weights.architecture.parts()
    reporter.start("writing", sum(len(weights.specs(part)) for part in parts))
    with write_atomically(folder) as partial:
        write_layout(partial, weights.architecture)
        for part in parts:
            _write_part(weights, part, partial / part, dtype, max_shard_bytes, reporter, metadata)
        extra = weights.extra() if keep_extra else None
        if extra is not None:
            specs = {name: extra.spec(name) for name in extra.names()}
            write_safetensors(partial / f"{EXTRA_STEM}.safetensors", specs, extra.read, FORMAT)


def write_vae_folder(
    weights: Weights,
    folder: Path,
    *,
    dtype: torch.dtype | None = None,
    metadata: Mapping[str, str] = FORMAT,
) -> None:
    """Write the VAE alone in diffusers' layout: its configuration and its weights."""
    with write_atomically(folder) as partial:
        write_json(partial / "config.json", dict(weights.architecture.vae))
        _write_part(weights, "vae", partial, dtype, DEFAULT_SHARD_BYTES, Silent(), metadata)


@contextmanager
def write_atomically(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it on success, remove it on failure."""
    refuse_existing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    try:
        yield partial
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        name_full_disk(error, folder)
        raise


def _write_part(
    weights: Weights,
    part: str,
    folder: Path,
    dtype: torch.dtype | None,
    max_shard_bytes: int,
    progress: Progress,
    metadata: Mapping[str, str],
) -> None:
    specs = {name: _cast(spec, dtype) for name, spec in weights.specs(part).items()}

    def produce(name: str) -> Tensor:
        progress.advance()
        return weights.read(part, name).to(specs[name].dtype)

    write_sharded(folder, part_stem(part), specs, produce, max_shard_bytes, metadata={**FORMAT, **metadata})


def write_single_file(
    weights: Weights,
    file: Path,
    *,
    dtype: torch.dtype | None = None,
    keep_extra: bool = True,
    progress: Progress | None = None,
    metadata: Mapping[str, str] = FORMAT,
) -> None:
    """Write one original-layout file: safetensors, or an old-style ckpt if the name ends in `.ckpt`."""
    if file.suffix not in SINGLE_FILE_SUFFIXES:
        rule = f"{file.name!r} should end in {' or '.join(SINGLE_FILE_SUFFIXES)}, which says the format"
        raise RequestError([Problem("destination", rule, str(file))])
    refuse_existing(file)
    rows = {row.original: row for row in key_mappings(weights.architecture)}
    specs = _original_specs(weights, dtype)
    extra = weights.extra() if keep_extra else None
    if extra is not None:
        specs |= {name: extra.spec(name) for name in extra.names() if name not in rows}
    reporter = progress or Silent()
    reporter.start("writing", len(specs))

    def produce(name: str) -> Tensor:
        reporter.advance()
        if extra is not None and name not in rows:
            return extra.read(name)
        return rows[name].to_original(weights.read).to(specs[name].dtype)

    if file.suffix == ".ckpt":
        tensors = {name: produce(name).contiguous() for name in specs}
        with atomic_write(file) as out:
            markers = {
                **_prediction_markers(weights.architecture),
                **_architecture_tensor(weights.architecture),
            }
            torch.save({"state_dict": {**markers, **tensors}}, out)
    else:
        described = {**FORMAT, **metadata, **_architecture_metadata(weights.architecture)}
        write_safetensors(file, specs, produce, described)


def _original_specs(weights: Weights, dtype: torch.dtype | None) -> dict[str, TensorSpec]:
    architecture = weights.architecture
    parts = architecture.parts()
    stored = {part: weights.specs(part) for part in parts}
    shapes = {part: architecture.tensor_shapes(part) for part in parts}
    specs = {}
    for row in key_mappings(architecture):
        part, piece = row.pieces[0]
        specs[row.original] = _cast(TensorSpec(stored[part][piece].dtype, row.original_shape(shapes)), dtype)
    return specs


def _architecture_metadata(architecture: Architecture) -> dict[str, str]:
    """Facts that no tensor shows: the architecture for Calotype, the prediction type for all tools."""
    prediction = "v" if architecture.prediction_type == "v_prediction" else architecture.prediction_type
    return {ARCHITECTURE_KEY: json.dumps(architecture.as_dict()), PREDICTION_KEY: prediction}


def _prediction_markers(architecture: Architecture) -> dict[str, Tensor]:
    """Empty tensors that state the prediction type in files without metadata, as trainers write them."""
    # Stable Diffusion 2 shows it in its weights, and its files never had the marker.
    if architecture.prediction_type != "v_prediction" or architecture.family == "sd2":
        return {}
    zero_snr = architecture.scheduler.get("rescale_betas_zero_snr")
    return {name: torch.empty(0) for name in (V_MARK, *([ZERO_SNR_MARK] if zero_snr else []))}


def _architecture_tensor(architecture: Architecture) -> dict[str, Tensor]:
    """The architecture as a tensor of bytes, unless its tensors identify it."""
    known = [catalogue.architecture(name) for name in CATALOGUE_NAME.values()]
    if any(_same_networks(architecture, other) for other in known):
        return {}
    text = json.dumps(architecture.as_dict()).encode()
    return {ARCHITECTURE_KEY: torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def _same_networks(one: Architecture, other: Architecture) -> bool:
    return (one.unet, one.vae, one.text_encoders) == (other.unet, other.vae, other.text_encoders)


def _cast(spec: TensorSpec, dtype: torch.dtype | None) -> TensorSpec:
    return spec if dtype is None or not spec.dtype.is_floating_point else TensorSpec(dtype, spec.shape)


def refuse_existing(target: Path) -> None:
    """Raise RequestError if the target exists: a model is too large to lose by mistake."""
    if target.exists():
        rule = f"{target} exists already; choose another name or remove it"
        raise RequestError([Problem("destination", rule, str(target))])
