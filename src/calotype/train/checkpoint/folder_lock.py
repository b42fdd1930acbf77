"""A lock that allows one writer per folder and is released when its process ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from calotype.train.checkpoint.errors import FolderInUseError

_log = logging.getLogger(__name__)

FILE_NAME = ".lock"
_MAX_NOTE_BYTES_LENGTH = 4096
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

_held_locks: set[FolderLock] = set()


class FolderLock:
    """A held lock; `sure` is False on file systems without locks, where other writers are not detected."""

    def __init__(self, folder: Path) -> None:
        """Lock `folder`, which must exist; fails while another process holds the lock."""
        self.path = folder / FILE_NAME
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self.sure = self._take(folder)
            if self.sure:
                self._write_note()
        except BaseException:
            os.close(self._fd)
            raise
        _release_in_children()
        _held_locks.add(self)

    @property
    def held(self) -> bool:
        """False after `release`, and in a child of the process that took it."""
        return self in _held_locks

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes lock two different files."""
        if self.held:
            _held_locks.discard(self)
            os.close(self._fd)

    def close_in_child(self) -> None:
        os.close(self._fd)

    def _take(self, folder: Path) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"{folder} is being written by {self._holder()}, which is still running; "
                "stop it or choose another folder (of a run: checkpoint.folder)"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            _log.warning(
                "%s is on a file system without locks (%s): make sure that only one run uses it; leftovers "
                "of killed runs there are not removed",
                folder,
                error.strerror,
            )
            return False
        return True

    def _write_note(self) -> None:
        note = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, note, 0)

    def _holder(self) -> str:
        try:
            note = json.loads(os.pread(self._fd, _MAX_NOTE_BYTES_LENGTH, 0))
            return f"process {int(note['pid'])} on {note['host']}"
        except (ValueError, KeyError, TypeError):
            # The other process has the lock and has not written its note yet.
            return "another process"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Create the folder if necessary, and hold its lock while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()


@cache  # a fork hook cannot be removed: registering it once is enough
def _release_in_children() -> None:
    """Close the locks in forked children: a data worker must not keep the lock of a run that has ended."""
    os.register_at_fork(after_in_child=_close_inherited)


def _close_inherited() -> None:
    for lock in _held_locks:
        lock.close_in_child()
    _held_locks.clear()
