"""File locks for work that several processes need and one should do while the others wait.

The ranks of a node start at the same moment with the same cache; without a lock each would download every
file.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calotype.train.data.bad_samples import DataError


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock file of `path` while creating it. The lock is released when its process dies."""
    descriptor = _lock_of(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def is_locked(path: Path) -> Iterator[bool]:
    """The same without waiting; yields False if another process has the lock."""
    descriptor = _lock_of(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _lock_of(path: Path) -> int:
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DataError(
            path.parent, f"cannot be written: {error.strerror}; set CALOTYPE_CACHE elsewhere"
        ) from None
