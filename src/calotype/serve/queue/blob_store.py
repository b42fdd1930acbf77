"""Stores files under the hash of their content; a file is complete on disk or absent."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from calotype.core.paths import atomic_write

MAX_VERIFIED = 10_000
"""Files that are remembered as verified: about 2 MB."""

_Identity = tuple[int, int, int, int]
"""Inode, size, times of the last write and change: a rewritten file differs in one of them."""


class DamagedFileError(OSError):
    """A file whose content does not match its name."""


def blob_name(data: bytes) -> str:
    """The SHA-256 of a file's content, which is its name."""
    return hashlib.sha256(data).hexdigest()


def is_blob_name(pieces: Sequence[bytes]) -> dict[str, bytes]:
    """Contents by their file names."""
    return {blob_name(data): data for data in pieces}


class BlobStore:
    """A folder of files named by their SHA-256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._protected: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._verified: OrderedDict[str, _Identity] = OrderedDict()
        """Files whose hash was correct, with their identity at that time; the latest used are at the end."""

    def read(self, name: str) -> bytes:
        """A file's content; raises DamagedFileError if it does not match its name.

        The hash is computed once for a file on disk, and again only when the file changes.
        """
        with (self._folder / name).open("rb") as file:
            identity = _identity_of(file.fileno())
            data = file.read()
        # A file that shrinks or grows during the read has another size than when it was opened.
        if self._is_verified(name, identity) and len(data) == identity[1]:
            return data
        if blob_name(data) != name:
            self._forget(name)
            raise DamagedFileError(
                f"{self._folder / name} is damaged: its content has changed since it was written"
            )
        self._remember(name, identity)
        return data

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files by name; an existing undamaged file stays.

        Each file is synced after it has its name, so that syncing the folder is cheap. Files that a power
        failure leaves before that are referenced by no row, and are removed when the queue is opened.
        """
        for name, data in files.items():
            path = self._folder / name
            if not self._is_intact(name):
                with atomic_write(path, synced=False) as file:
                    file.write(data)
            # Also an existing file: another thread may have just written it.
            _sync(path, os.O_RDONLY)
        sync_folder(self._folder)

    @contextmanager
    def contains(self, names: Collection[str]) -> Iterator[None]:
        """Protect these files from removal during the block, in which they become referenced."""
        names = tuple(names)
        with self._lock:
            self._protected.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._protected.subtract(names)
                self._protected = +self._protected

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that no `contains` block protects."""
        with self._lock:
            for name in names:
                if name not in self._protected:
                    (self._folder / name).unlink(missing_ok=True)
                    self._verified.pop(name, None)

    def _is_intact(self, name: str) -> bool:
        """Whether a file exists with the content that its name says."""
        try:
            self.read(name)
        # An unreadable file is replaced, too; if that also fails, the write reports it.
        except OSError:
            return False
        return True

    def _is_verified(self, name: str, identity: _Identity) -> bool:
        with self._lock:
            if self._verified.get(name) != identity:
                return False
            self._verified.move_to_end(name)
            return True

    def _remember(self, name: str, identity: _Identity) -> None:
        with self._lock:
            self._verified[name] = identity
            self._verified.move_to_end(name)
            while len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._verified.pop(name, None)

    def names(self) -> list[str]:
        """All files in the folder, including those of interrupted writes."""
        return sorted(path.name for path in self._folder.iterdir())


def _identity_of(descriptor: int) -> _Identity:
    status = os.fstat(descriptor)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sync_file(path: Path) -> None:
    """Flush a file's content to disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, which makes new names in it durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
