"""Check free disk space, and turn errors of the file system into messages with a fix."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calotype.train.checkpoint.errors import CannotWriteError, NoDiskSpaceError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
_MAKE_ROOM = "remove something there, lower checkpoint.keep_last, or choose another checkpoint.folder"
_CHOOSE_ANOTHER = "make it writable or choose another checkpoint.folder"
_ASK_SYSTEM = "check the disk, or choose another checkpoint.folder"


def free_bytes(folder: Path) -> int | None:
    """The free space where `folder` is or will be; None if the system does not report it."""
    for place in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def check_free_space(folder: Path, needed_bytes: int) -> None:
    """Refuse a write that would not fit, before its first byte."""
    free = free_bytes(folder)
    if free is not None and free < needed_bytes:
        raise NoDiskSpaceError(
            folder,
            "the disk has too little free space",
            _MAKE_ROOM,
            needed_bytes=needed_bytes,
            free_bytes=free,
        )


@contextmanager
def explained(folder: Path, needed_bytes: int | None = None) -> Iterator[None]:
    """Turn an OSError into an error that names the folder, the needed bytes and the free bytes."""
    try:
        yield
    except OSError as error:
        kind, fix = CannotWriteError, _ASK_SYSTEM
        if error.errno in _NO_ROOM:
            kind, fix = NoDiskSpaceError, _MAKE_ROOM
        elif error.errno in _NOT_ALLOWED:
            fix = _CHOOSE_ANOTHER
        reason = error.strerror or str(error)
        if error.filename is not None:
            reason = f"{reason}: {error.filename}"
        raise kind(folder, reason, fix, needed_bytes=needed_bytes, free_bytes=free_bytes(folder)) from error
