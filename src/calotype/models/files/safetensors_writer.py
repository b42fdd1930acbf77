"""Writes safetensors one tensor at a time, so that memory holds only one tensor at once.

The output equals that of the safetensors library byte for byte.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import torch

from calotype.core.paths import atomic_write
from calotype.core.progress import Progress, Silent
from calotype.models.files.dtypes import SAFETENSORS_NAMES
from calotype.models.files.safetensors_layout import METADATA_KEY, broken_name_rule, encode_header, lay_out

Declared = Mapping[str, tuple[torch.dtype, Sequence[int]]]
Produce = Callable[[str], torch.Tensor]


def write_safetensors(
    path: Path,
    entries: Declared,
    produce: Produce,
    metadata: Mapping[str, str] | None = None,
    *,
    progress: Progress | None = None,
) -> None:
    """Write `entries` (name → dtype, shape) to `path`; `produce` returns each tensor when it is due.

    An interrupted write keeps the previous file. A tensor that differs from its entry raises ValueError.
    """
    with atomic_write(path) as file:
        stream_safetensors(file, entries, produce, metadata, progress or Silent())


def stream_safetensors(
    file: IO[bytes],
    entries: Declared,
    produce: Produce,
    metadata: Mapping[str, str] | None,
    progress: Progress,
) -> None:
    """Write header and tensors to an open file."""
    for name in entries:
        rule = f"{METADATA_KEY} is no tensor's name" if name == METADATA_KEY else broken_name_rule(name)
        if rule is not None:
            raise ValueError(rule)
    if metadata and not all(isinstance(part, str) for pair in metadata.items() for part in pair):
        raise ValueError(f"metadata maps text to text, not {dict(metadata)!r}")
    layout = lay_out(
        {name: (_safetensors_name(name, dtype), shape) for name, (dtype, shape) in entries.items()}
    )
    progress.start("writing tensors", sum(entry.num_bytes for entry in layout.values()))
    file.write(encode_header(layout, metadata))
    for name, entry in layout.items():
        file.write(_checked_bytes(name, produce(name), *entries[name]))
        progress.advance(entry.num_bytes)


def _safetensors_name(name: str, dtype: torch.dtype) -> str:
    dtype_name = SAFETENSORS_NAMES.get(dtype)
    if dtype_name is None:
        raise ValueError(f"tensor {name!r}: safetensors cannot hold {dtype}")
    return dtype_name


def _checked_bytes(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> memoryview:
    if tensor.dtype != dtype or tuple(tensor.shape) != tuple(shape):
        produced, declared = f"{tensor.dtype} {tuple(tensor.shape)}", f"{dtype} {tuple(shape)}"
        raise ValueError(f"tensor {name!r} was declared as {declared} but produced as {produced}")
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return raw.numpy().data
