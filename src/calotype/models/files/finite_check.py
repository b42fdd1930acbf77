"""Finds weights with NaN or infinity, which would otherwise show later as black images."""

import torch

from calotype.models.files.base import TensorReader
from calotype.models.files.dtypes import TORCH_DTYPES

_CHUNK_ITEMS = 2**24


def find_non_finite(reader: TensorReader) -> list[str]:
    """Names of the tensors that hold NaN or an infinity, in the file's order. Integers are not read."""
    return [
        name for name in reader if _can_be_non_finite(reader, name) and not _all_finite(reader.read(name))
    ]


def _can_be_non_finite(reader: TensorReader, name: str) -> bool:
    dtype = TORCH_DTYPES[reader.entry(name).dtype]
    return dtype.is_floating_point or dtype.is_complex


def _all_finite(tensor: torch.Tensor) -> bool:
    # In chunks: torch cannot test eight-bit floats, so they are converted to fp32 at four times the size.
    for chunk in tensor.reshape(-1).split(_CHUNK_ITEMS):
        wide = chunk.float() if chunk.element_size() == 1 else chunk
        if not bool(torch.isfinite(wide).all()):
            return False
    return True
