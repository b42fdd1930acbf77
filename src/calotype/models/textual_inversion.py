"""Reads textual-inversion embeddings (Gal et al. 2022, arXiv:2208.01618) in their common file formats."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.files.open import open_tensors
from calotype.models.files.safetensors_reader import TensorFile

MAX_VECTORS = 75
"""A prompt chunk has 75 tokens between its start and end tokens; a longer embedding could never fit."""
BY_ENCODER = ("clip_l", "clip_g")
"""Names of the first and second encoder's vectors in files for SDXL."""
ALONE = "emb_params"
A1111 = "string_to_param."


def read_embedding(path: Path, architecture: Architecture) -> list[Tensor]:
    """Read the vectors of one embedding: one tensor (count × width) per text encoder of the model."""
    widths = [int(config["hidden_size"]) for config in architecture.text_encoders]
    with open_tensors(path) as file:
        candidates = {name: _vectors(file, name) for name in _names(file)}
    chosen = _choose(candidates, widths)
    if chosen is None:
        has = ", ".join(str(vectors.shape[1]) for vectors in candidates.values())
        rule = f"has vectors of width {has}; {architecture.title} needs {' and '.join(map(str, widths))}"
        raise ModelFileError(path, f"{rule}: the embedding is for another base model")
    if len({len(vectors) for vectors in chosen}) > 1:
        counts = " and ".join(str(len(vectors)) for vectors in chosen)
        raise ModelFileError(path, f"has {counts} vectors for the text encoders; they must be equally many")
    return chosen


def _choose(candidates: Mapping[str, Tensor], widths: Sequence[int]) -> list[Tensor] | None:
    """The vectors for each encoder: by name if the file names encoders, else by width."""
    if len(widths) > 1:
        by_name = [candidates[name] for name in BY_ENCODER if name in candidates]
        return by_name if [vectors.shape[1] for vectors in by_name] == list(widths) else None
    matching = [vectors for vectors in candidates.values() if vectors.shape[1] == widths[0]]
    return matching[:1] or None


def _names(file: TensorFile) -> list[str]:
    names = [name for name in file if name in (*BY_ENCODER, ALONE) or name.startswith(A1111)]
    if not names and len(file) == 1:
        names = list(file)
    if not names:
        shown = ", ".join(sorted(file)[:3]) or "none"
        raise ModelFileError(file.path, f"is not an embedding: its tensors are {shown}")
    return names


def _vectors(file: TensorFile, name: str) -> Tensor:
    shape = file.entry(name).shape
    count = 1 if len(shape) == 1 else shape[0] if len(shape) == 2 else 0
    if not 1 <= count <= MAX_VECTORS:
        rule = f"{name!r} has shape {list(shape)}, expected 1 to {MAX_VECTORS} vectors"
        raise ModelFileError(file.path, rule)
    vectors = file.read(name).float().reshape(count, -1)
    if not torch.isfinite(vectors).all():
        raise ModelFileError(file.path, f"{name!r} holds NaN or infinity")
    return vectors
