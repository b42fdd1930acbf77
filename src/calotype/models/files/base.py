"""What every source of named tensors offers, whether it is one file or several. Opens nothing itself."""

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
    """Named tensors, read one at a time. Use as a context manager, or close it."""

    path: Path
    """The file the user named, or the index of several."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, str]:
        """Text the writer put beside the tensors."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """What all tensors take together."""

    @abstractmethod
    def keys(self) -> KeysView[str]:
        """The tensors' names."""

    @abstractmethod
    def entry(self, name: str) -> TensorEntry:
        """Dtype and shape of a tensor, without reading it."""

    @abstractmethod
    def read(self, name: str) -> torch.Tensor:
        """A tensor in memory of its own, on the CPU."""

    @abstractmethod
    def sha256(self, progress: Progress | None = None) -> str:
        """A digest of the content in hexadecimal."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""

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
        """The error for a name that is not there; a model has thousands, so only near ones are shown."""
        near = difflib.get_close_matches(name, self.keys(), n=3, cutoff=0.8)
        hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        return ModelFileError(self.path, f"has no tensor {name!r} among its {len(self)}{hint}")
