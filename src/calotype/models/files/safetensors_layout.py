"""Computes the positions of tensors in a safetensors file and encodes its header.

It uses only the standard library, because the sandboxed process that reads old pickles imports it.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# In the order in which the safetensors library writes them: widest first, which keeps every tensor aligned.
ITEM_BYTES = {
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
    "F32": 4,
    "U32": 4,
    "I32": 4,
    "BF16": 2,
    "F16": 2,
    "U16": 2,
    "I16": 2,
    "F8_E5M2FNUZ": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E8M0": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
METADATA_KEY = "__metadata__"
MAX_TENSOR_NAME_LENGTH = 1024
MAX_DIMENSIONS = 64
MAX_BYTES = 2**63 - 1

_RANK = {dtype: rank for rank, dtype in enumerate(ITEM_BYTES)}
_DUNDER = re.compile(r"(?<!\w)__\w+__(?!\w)")
_HEADER_ALIGNMENT = 8


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: dtype in safetensors' notation ("F16"), shape, position in the data section."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.start


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Size of a tensor in bytes."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def broken_name_rule(name: str) -> str | None:
    """Why `name` cannot be a tensor's name, or None if it can."""
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    if not name:
        return "a tensor has an empty name"
    if len(name) > MAX_TENSOR_NAME_LENGTH:
        return f"tensor name {shown!r} has {len(name)} characters, the limit is {MAX_TENSOR_NAME_LENGTH}"
    if not name.isprintable():
        return f"tensor name {shown!r} holds control characters"
    # Names become attribute paths of modules; these would access Python internals.
    if _DUNDER.search(name):
        return f"tensor name {shown!r} holds a Python-internal part such as __class__"
    return None


def lay_out(tensors: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, TensorEntry]:
    """Positions of tensors given as name → (dtype, shape), in the order in which they are written."""
    entries = {}
    position = 0
    for name in sorted(tensors, key=lambda n: (_RANK[tensors[n][0]], n)):
        dtype, shape = tensors[name]
        end = position + bytes_of(dtype, shape)
        entries[name] = TensorEntry(dtype, tuple(shape), position, end)
        position = end
    return entries


def encode_header(entries: Mapping[str, TensorEntry], metadata: Mapping[str, str] | None) -> bytes:
    """The bytes before the first tensor, padded so that tensors are aligned."""
    header: dict[str, object] = {} if metadata is None else {METADATA_KEY: dict(metadata)}
    for name, entry in entries.items():
        header[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [entry.start, entry.end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
