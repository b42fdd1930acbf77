"""The size of every picture of a source, which buckets need beforehand. Found once and kept."""

from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.core.paths import cache_dir
from calotype.models.files.safetensors_reader import open_safetensors
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.train.data.file_lock import exclusive_lock
from calotype.train.data.types import Source


def image_sizes(source: Source) -> Tensor:
    """(n, 2): height and width of every picture; 0 where it cannot be told."""
    kept = cache_dir() / "picture-sizes" / f"{source.identity}.safetensors"
    with exclusive_lock(kept):
        sizes = _read_kept(kept)
        if sizes is None:
            sizes = torch.tensor([source.size_of(index) or (0, 0) for index in range(len(source))])
            write_safetensors(kept, {"sizes": (sizes.dtype, sizes.shape)}, lambda _: sizes)
    return sizes


def _read_kept(kept: Path) -> Tensor | None:
    if not kept.exists():
        return None
    try:
        with open_safetensors(kept) as file:
            return file.read("sizes")
    except ModelFileError:
        return None
