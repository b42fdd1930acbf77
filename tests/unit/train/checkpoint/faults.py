"""Every change a process makes on the disk, counted; any of them can be refused, or be its last."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from calotype.train.checkpoint.fs import NewFile

KILLED = 9
NEVER = -1


def refuse() -> None:
    raise OSError(errno.EIO, "the disk failed")


def die() -> None:
    os._exit(KILLED)


@dataclass
class Disk:
    """Counts operations and calls `fault` before operation number `at`.

    Syncing is counted and not done: a process that is killed loses nothing by it, and it is what takes time.
    """

    at: int = NEVER
    fault: Callable[[], None] = refuse
    operations: list[tuple[str, ...]] = field(default_factory=list)
    _undo: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        patch = self._undo.enter_context(pytest.MonkeyPatch.context())
        for name in ("mkdir", "rename", "unlink", "rmdir", "open", "ftruncate"):
            patch.setattr(os, name, self._counted(name, getattr(os, name)))
        patch.setattr(os, "fsync", self._counted("fsync", lambda _: None))
        patch.setattr(io, "FileIO", self._counted("create", io.FileIO))
        patch.setattr(NewFile, "write", self._torn(NewFile.write))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def number_of(self, *operation: str) -> int:
        """When an operation took place."""
        return self.operations.index(operation)

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._pass(name, *(_shown(arg) for arg in args[: 2 if name == "rename" else 1]))
            return original(*args, **options)

        return counted

    def _torn(self, write: Callable[..., int]) -> Callable[..., int]:
        """A write that is interrupted leaves half of itself."""

        def torn(file: NewFile, data: Any) -> int:
            if len(self.operations) == self.at:
                write(file, memoryview(data)[: len(data) // 2])
                file.flush()
            self._pass("write", Path(str(file.name)).name)
            return write(file, data)

        return torn

    def _pass(self, *operation: str) -> None:
        number = len(self.operations)
        self.operations.append(operation)
        if number == self.at:
            self.fault()


def _shown(argument: Any) -> str:
    """A file's name; for a descriptor the name of what is open there."""
    if isinstance(argument, int):
        link = Path(f"/proc/self/fd/{argument}")
        return link.readlink().name if link.is_symlink() else ""
    return Path(argument).name
