"""Files and folders that are on the disk when a call returns, not only in the kernel's memory.

Knows nothing of what they hold.
"""

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
    """What a file has to be: its size and the digest of its content."""

    num_bytes: int
    sha256: str


class NewFile(io.BufferedWriter):
    """A file that did not exist before. Its digest comes with writing it, so it is never read for that."""

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
        """Of all that was written so far."""
        return FileMark(self._num_bytes, self._digest.hexdigest())


@contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """Write a new file; its content is on the disk when the block ends without an error."""
    with NewFile(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut: syncing a file does not sync its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move(folder: Path, target: Path) -> None:
    """Give a folder another name beside it, at once and for good. `target` must not exist."""
    folder.rename(target)
    sync_folder(target.parent)


def remove_folder(folder: Path) -> None:
    """Take a folder away, renamed first and then emptied: under its own name it is whole or not there."""
    removed = folder.with_name(f".{folder.name.lstrip('.')}{REMOVED_SUFFIX}")
    if removed.exists():
        shutil.rmtree(removed)
    folder.rename(removed)
    shutil.rmtree(removed)


def remove_or_say(folder: Path) -> None:
    """`remove_folder` for what does no harm where it is: a failure is logged and no more."""
    try:
        remove_folder(folder)
    except OSError as error:
        _log.warning("%s is no longer needed and could not be removed: %s", folder, error)
