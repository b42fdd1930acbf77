"""Weight files made by hand, byte by byte where need be, for the tests of this folder."""

import io
import json
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with any header: bytes as they are, anything else as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(start: int, end: int, *, dtype: object = "F32", shape: object = None) -> dict[str, object]:
    return {
        "dtype": dtype,
        "shape": [(end - start) // 4] if shape is None else shape,
        "data_offsets": [start, end],
    }


@dataclass(frozen=True)
class Storage:
    """What a pickle says about a storage; it need not be true."""

    key: object = "0"
    items: object = 4
    kind: Any = torch.FloatStorage


@dataclass(frozen=True)
class Tensor:
    """What a pickle says about a tensor; it need not be true."""

    storage: object = Storage()
    offset: object = 0
    shape: object = (2, 2)
    strides: object = (2, 1)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        hooks: OrderedDict[str, object] = OrderedDict()
        arguments = (self.storage, self.offset, self.shape, self.strides, False, hooks)
        return torch._utils._rebuild_tensor_v2, arguments


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        if isinstance(obj, Storage):
            return ("storage", obj.kind, obj.key, "cpu", obj.items)
        return None


def pickled(value: object) -> bytes:
    """A pickle as torch writes it, with `Tensor` and `Storage` in place of real ones."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


FOUR_FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def torch_zip(
    path: Path,
    pickle_bytes: bytes,
    storages: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """An archive laid out as `torch.save` does, with any pickle in it."""
    members = {"data.pkl": pickle_bytes, "byteorder": b"little"}
    members |= {
        f"data/{key}": data for key, data in ({"0": FOUR_FLOATS} if storages is None else storages).items()
    }
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    return path


def add_members(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "a") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def patch_directory(path: Path, offset: int, value: bytes) -> Path:
    """Overwrite a field of every entry in a zip's central directory."""
    data = bytearray(path.read_bytes())
    position = data.find(b"PK\x01\x02")
    while position >= 0:
        data[position + offset : position + offset + len(value)] = value
        position = data.find(b"PK\x01\x02", position + 4)
    path.write_bytes(data)
    return path


def flip_byte(path: Path, position: int) -> Path:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
    return path
