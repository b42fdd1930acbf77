"""One writer per folder: a lock that ends with the process that holds it, however it ends.

Knows nothing of what the folder is for.
"""

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

_held: set[FolderLock] = set()


class FolderLock:
    """A held lock; `sure` is False where the file system has no locks and nobody can know."""

    def __init__(self, folder: Path) -> None:
        """Take the lock of `folder`, which exists; refused while another process has it."""
        self.path = folder / FILE_NAME
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self.sure = self._take(folder)
            if self.sure:
                self._sign()
        except BaseException:
            os.close(self._fd)
            raise
        _release_in_children()
        _held.add(self)

    @property
    def held(self) -> bool:
        """False after `release`, and in a child of the process that took it."""
        return self in _held

    def release(self) -> None:
        """Let the next one have it. The file stays: removing it would let two hold locks on two files."""
        if self.held:
            _held.discard(self)
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
                "%s is on a file system without locks (%s): make sure that only one run uses it; what dead "
                "runs left there is not removed",
                folder,
                error.strerror,
            )
            return False
        return True

    def _sign(self) -> None:
        note = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, note, 0)

    def _holder(self) -> str:
        try:
            note = json.loads(os.pread(self._fd, _MAX_NOTE_BYTES_LENGTH, 0))
            return f"process {int(note['pid'])} on {note['host']}"
        except (ValueError, KeyError, TypeError):
            # It has the lock and has not signed yet.
            return "another process"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, made if need be, is this process's own for as long as the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()


@cache  # Python can add such a hook and never remove it: once is enough
def _release_in_children() -> None:
    """A forked data worker must not keep the lock when the run that started it is gone."""
    os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for lock in _held:
        lock.close_in_child()
    _held.clear()
