"""Reads tensors from a validated safetensors file, one at a time.

The file is read, not mapped: if another process truncates a mapped file, the next access kills the whole
process with SIGBUS, which a server must survive.
"""

from collections.abc import KeysView, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from calotype.core.errors import ModelFileError
from calotype.core.progress import Progress
from calotype.models.files.base import TensorReader
from calotype.models.files.dtypes import TORCH_DTYPES
from calotype.models.files.safe_open import OpenedFile, open_model_file
from calotype.models.files.safetensors_header import read_header
from calotype.models.files.safetensors_layout import TensorEntry
from calotype.models.files.sniff import FileKind


@dataclass(frozen=True)
class Origin:
    """The user's file, if the tensors are read from a converted copy of it."""

    path: Path
    kind: FileKind
    sha256: str


class TensorFile(TensorReader):
    """A weight file with a validated header.

    `path`, `kind` and `sha256()` are those of the user's file, even if a converted copy is read.
    """

    def __init__(self, opened: OpenedFile, origin: Origin | None = None) -> None:
        """Take ownership of `opened`, which must be safetensors, and validate its header."""
        self._opened = opened
        self._header = read_header(opened)
        self.path = origin.path if origin else opened.path
        self.kind = origin.kind if origin else FileKind.SAFETENSORS
        self._sha256 = origin.sha256 if origin else None

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._header.metadata

    @property
    def size_bytes(self) -> int:
        return self._opened.size_bytes - self._header.data_start

    def keys(self) -> KeysView[str]:
        return self._header.tensors.keys()

    def entry(self, name: str) -> TensorEntry:
        entry = self._header.tensors.get(name)
        if entry is None:
            raise self.no_such_tensor(name)
        return entry

    def read(self, name: str) -> torch.Tensor:
        entry = self.entry(name)
        tensor = torch.empty(entry.shape, dtype=TORCH_DTYPES[entry.dtype])
        if entry.num_bytes:
            raw = tensor.reshape(-1).view(torch.uint8)
            self._opened.read_into(raw.numpy().data, self._header.data_start + entry.start)
            self._opened.check_unchanged()
            # Any other byte in a boolean tensor is undefined behavior in torch.
            if tensor.dtype == torch.bool and int(raw.max()) > 1:
                found = f"byte {int(raw.max())} is neither 0 nor 1"
                raise ModelFileError(self.path, f"tensor {name!r} is BOOL, but its {found}")
        return tensor

    def sha256(self, progress: Progress | None = None) -> str:
        if self._sha256 is None:
            self._sha256 = self._opened.sha256(progress)
        return self._sha256

    def close(self) -> None:
        self._opened.close()


def open_safetensors(path: Path, *, inside: Path | None = None, origin: Origin | None = None) -> TensorFile:
    """Open a file that must be safetensors."""
    opened = open_model_file(path, inside=inside)
    try:
        if opened.kind is not FileKind.SAFETENSORS:
            raise ModelFileError(path, f"is a {opened.kind}; only safetensors are accepted here")
        return TensorFile(opened, origin)
    except BaseException:
        opened.close()
        raise
