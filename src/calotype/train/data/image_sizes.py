"""The size of every image of a source, which buckets need in advance; measured once and cached."""

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
    """(n, 2): height and width of every image; 0 if unknown."""
    cache_file = cache_dir() / "picture-sizes" / f"{source.identity}.safetensors"
    with exclusive_lock(cache_file):
        sizes = _read_cached(cache_file)
        if sizes is None:
            sizes = torch.tensor([source.size_of(index) or (0, 0) for index in range(len(source))])
            write_safetensors(cache_file, {"sizes": (sizes.dtype, sizes.shape)}, lambda _: sizes)
    return sizes


def _read_cached(cache_file: Path) -> Tensor | None:
    if not cache_file.exists():
        return None
    try:
        with open_safetensors(cache_file) as file:
            return file.read("sizes")
    except ModelFileError:
        return None
