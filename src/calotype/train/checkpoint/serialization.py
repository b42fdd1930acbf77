"""Write one state as two files, `NAME.safetensors` and `NAME.json`, and read it back.

The JSON contains the digest of the tensor file, so the digest of the JSON covers both.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calotype.core.errors import CalotypeError, ModelFileError
from calotype.core.progress import Silent
from calotype.models.files.safe_open import open_regular
from calotype.models.files.safetensors_header import strict_json
from calotype.models.files.safetensors_reader import TensorFile
from calotype.models.files.safetensors_writer import stream_safetensors
from calotype.train.checkpoint.flatten import FlatState, restore
from calotype.train.checkpoint.fs import FileMark, new_file

FORMAT = 1
_HEADER_BYTES_PER_TENSOR = 200
_SLACK_BYTES = 2**16


def needed_bytes(flat: FlatState) -> int:
    """The size of a state on the disk, rounded up."""
    tensors = sum(t.nbytes + len(name) + _HEADER_BYTES_PER_TENSOR for name, t in flat.tensors.items())
    return tensors + len(_encode(flat.skeleton)) + _SLACK_BYTES


def write_state(folder: Path, name: str, flat: FlatState) -> dict[str, FileMark]:
    """Write both files, tensors first; returns their sizes and digests by file name."""
    entries = {tensor: (value.dtype, value.shape) for tensor, value in flat.tensors.items()}
    with new_file(folder / f"{name}.safetensors") as file:
        stream_safetensors(file, entries, flat.tensors.__getitem__, None, Silent())
    tensors = file.mark
    recorded = {"bytes": tensors.num_bytes, "sha256": tensors.sha256}
    with new_file(folder / f"{name}.json") as file:
        file.write(_encode({"format": FORMAT, "tensors": recorded, "state": flat.skeleton}))
    return {f"{name}.safetensors": tensors, f"{name}.json": file.mark}


def marks_of(folder: Path, name: str) -> dict[str, FileMark]:
    """The sizes and digests that another process recorded with `write_state`, without reading the tensors."""
    text = _read_bytes(folder / f"{name}.json")
    sidecar = _Sidecar(folder / f"{name}.json", text)
    own = FileMark(len(text), hashlib.sha256(text).hexdigest())
    return {f"{name}.safetensors": sidecar.tensors, f"{name}.json": own}


def read_state(folder: Path, name: str, marks: dict[str, FileMark]) -> Any:
    """Read a state; every byte is verified against `marks` in the same pass."""
    file = folder / f"{name}.json"
    text = _read_bytes(file)
    _compare(file, FileMark(len(text), hashlib.sha256(text).hexdigest()), marks[file.name])
    sidecar = _Sidecar(file, text)
    tensors = _read_tensors(folder / f"{name}.safetensors", marks[f"{name}.safetensors"])
    try:
        return restore(FlatState(tensors, sidecar.skeleton))
    except CalotypeError:
        raise
    except Exception as error:
        raise ModelFileError(file, f"does not describe a state: {type(error).__name__}: {error}") from error


class _Sidecar:
    """The JSON beside the tensors, with its fields checked."""

    def __init__(self, file: Path, text: bytes) -> None:
        fields = strict_json(file, text, "it")
        if fields.get("format") != FORMAT:
            found = f"has format {fields.get('format')!r}, this version of Calotype reads {FORMAT}"
            raise ModelFileError(file, f"{found}; use the version that wrote it")
        try:
            recorded: Any = fields["tensors"]
            self.tensors = FileMark(recorded["bytes"], recorded["sha256"])
            self.skeleton = fields["state"]
        except (KeyError, TypeError) as error:
            raise ModelFileError(file, f"lacks a field: {error}") from None


def _read_bytes(file: Path) -> bytes:
    with open_regular(file) as opened:
        return opened.read_at(0, opened.size_bytes)


def _read_tensors(path: Path, mark: FileMark) -> dict[str, Tensor]:
    """All tensors in file order, so that the digest of the whole file is computed while reading."""
    opened = open_regular(path)
    try:
        file = TensorFile(opened)
        header = opened.read_at(0, opened.size_bytes - file.size_bytes)
        digest = hashlib.sha256(header)
        tensors = {}
        for name in sorted(file, key=lambda name: (file.entry(name).start, file.entry(name).end)):
            tensors[name] = file.read(name)
            digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
        _compare(path, FileMark(opened.size_bytes, digest.hexdigest()), mark)
        return tensors
    finally:
        opened.close()


def _compare(path: Path, found: FileMark, expected: FileMark) -> None:
    if found.num_bytes != expected.num_bytes:
        raise ModelFileError(path, f"has {found.num_bytes} bytes, {expected.num_bytes} were written")
    if found.sha256 != expected.sha256:
        digests = f"{found.sha256[:12]}… instead of {expected.sha256[:12]}…"
        raise ModelFileError(path, f"holds other bytes than were written (sha256 {digests})")


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
