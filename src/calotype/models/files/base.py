"""Defines the interface of a source of named tensors, whether one file or several."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, KeysView, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from calotype.core.errors import ModelFileError
from calotype.core.progress import Progress
from calotype.models.files.safetensors_layout import TensorEntry


class TensorReader(ABC):
    """Named tensors, read one at a time. Use it as a context manager or close it."""

    path: Path
    """The file the user named, or the index of several."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, str]:
        """The file's text metadata."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Total size of all tensors."""

    @abstractmethod
    def keys(self) -> KeysView[str]:
        """The tensors' names."""

    @abstractmethod
    def entry(self, name: str) -> TensorEntry:
        """Dtype and shape of a tensor, without its values."""

    @abstractmethod
    def read(self, name: str) -> torch.Tensor:
        """Read a tensor into its own CPU memory."""

    @abstractmethod
    def sha256(self, progress: Progress | None = None) -> str:
        """The content's digest in hexadecimal."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def no_such_tensor(self, name: str) -> ModelFileError:
        """The error for an unknown name; it suggests similar names only, as a model has thousands."""
        near = difflib.get_close_matches(name, self.keys(), n=3, cutoff=0.8)
        hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        return ModelFileError(self.path, f"has no tensor {name!r} among its {len(self)}{hint}")
