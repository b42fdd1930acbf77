"""Durable file operations: files and folders are on the disk when a call returns, not only in memory."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_log = logging.getLogger(__name__)

REMOVED_SUFFIX = ".removed"
_BUFFER_BYTES = 2**20


@dataclass(frozen=True)
class FileMark:
    """The expected size and digest of a file."""

    num_bytes: int
    sha256: str


class NewFile(io.BufferedWriter):
    """A new file that computes its digest while it is written, so that it is not read again for that."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "x"), _BUFFER_BYTES)
        self._digest = hashlib.sha256()
        self._num_bytes = 0

    def write(self, data: ReadableBuffer, /) -> int:
        self._digest.update(data)
        self._num_bytes += memoryview(data).nbytes
        return super().write(data)

    @property
    def mark(self) -> FileMark:
        """The size and digest of everything written so far."""
        return FileMark(self._num_bytes, self._digest.hexdigest())


@contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """Write a new file; its content is on the disk when the block ends without an error."""
    with NewFile(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure: fsync of a file does not sync its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move(folder: Path, target: Path) -> None:
    """Rename a folder within its parent atomically and durably. `target` must not exist."""
    folder.rename(target)
    sync_folder(target.parent)


def remove_folder(folder: Path) -> None:
    """Rename a folder, then delete it, so that under its own name it is either complete or absent."""
    removed = folder.with_name(f".{folder.name.lstrip('.')}{REMOVED_SUFFIX}")
    if removed.exists():
        shutil.rmtree(removed)
    folder.rename(removed)
    shutil.rmtree(removed)


def remove_or_say(folder: Path) -> None:
    """`remove_folder` for folders that do no harm if they stay: a failure is only logged."""
    try:
        remove_folder(folder)
    except OSError as error:
        _log.warning("%s is no longer needed and could not be removed: %s", folder, error)
