"""Textual-inversion embeddings: learned words, read in the dialects people share them in.

Gal et al. 2022, arXiv:2208.01618. Knows the files and the width of each text encoder; prompts are not its business.
"""

from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.files.converted import open_tensors
from calotype.models.files.tensor_file import TensorFile

MOST_VECTORS = 75
"""A prompt has room for 75 tokens between its marks; a longer word could never be said."""


def read_embedding(path: Path, architecture: Architecture) -> list[Tensor]:
    """The vectors of one learned word, one tensor (count × width) per text encoder of the model."""
    widths = [int(config["hidden_size"]) for config in architecture.text_encoders]
    with open_tensors(path) as file:
        found = _vectors(file)
    by_width = {vectors.shape[1]: vectors for vectors in found}
    missing = [width for width in widths if width not in by_width]
    if missing:
        has = ", ".join(str(width) for width in sorted(by_width))
        rule = f"has vectors of width {has}; {architecture.title} needs {' and '.join(map(str, widths))}"
        raise ModelFileError(path, f"{rule}: the embedding is for another base model")
    return [by_width[width] for width in widths]


def _vectors(file: TensorFile) -> list[Tensor]:
    names = [name for name in ("clip_l", "clip_g", "emb_params") if name in file.keys()]
    names = names or [name for name in file.keys() if name.startswith("string_to_param.")]
    if not names and len(file.keys()) == 1:
        names = list(file.keys())
    if not names:
        raise ModelFileError(file.path, f"is not an embedding: its tensors are {', '.join(sorted(file.keys())[:3])}")
    found = []
    for name in names:
        vectors = file.read(name).float()
        vectors = vectors[None] if vectors.dim() == 1 else vectors
        if vectors.dim() != 2 or not 1 <= len(vectors) <= MOST_VECTORS:
            rule = f"{name!r} has shape {list(vectors.shape)}, expected 1 to {MOST_VECTORS} vectors"
            raise ModelFileError(file.path, rule)
        if not torch.isfinite(vectors).all():
            raise ModelFileError(file.path, f"{name!r} holds NaN or infinity")
        found.append(vectors)
    return found
