"""Pictures as files named by their content: whole on disk, or not there. Knows nothing of jobs."""

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
"""Files whose state on disk is remembered as good: about 2 MB."""

_Identity = tuple[int, int, int, int]
"""Inode, size, times of the last write and change: a file that was written over differs in one of them."""


class DamagedFileError(OSError):
    """A file whose content is no longer what its name says."""


def blob_name(data: bytes) -> str:
    """The SHA-256 of a file's content, which is its name."""
    return hashlib.sha256(data).hexdigest()


def is_blob_name(pieces: Sequence[bytes]) -> dict[str, bytes]:
    """Files by their names."""
    return {blob_name(data): data for data in pieces}


class BlobStore:
    """A folder of such files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._verified: OrderedDict[str, _Identity] = OrderedDict()
        """Files whose hash was right, as they were then; those used last are at the end."""

    def read(self, name: str) -> bytes:
        """A file's content; raises DamagedFileError if it is not what was written.

        The hash is computed once for a file as it lies on disk, and again only when that changes.
        """
        with (self._folder / name).open("rb") as file:
            identity = _identity_of(file.fileno())
            data = file.read()
        # A file that shrinks or grows while it is read has another size than it had when it was opened.
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
        """Bring all to disk, by name; one that is there already, and undamaged, stays.

        Synced after they have their names: the folder's own sync has little left to do then. What a loss of
        power leaves before that belongs to nobody yet, and is swept away when the queue is opened.
        """
        for name, data in files.items():
            path = self._folder / name
            if not self._is_intact(name):
                with atomic_write(path, synced=False) as file:
                    file.write(data)
            # Also one that was there: another thread may be just here with it.
            _sync(path, os.O_RDONLY)
        sync_folder(self._folder)

    @contextmanager
    def contains(self, names: Collection[str]) -> Iterator[None]:
        """Nothing of these is removed meanwhile: somebody is about to say that they are used."""
        names = tuple(names)
        with self._lock:
            self._held.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._held.subtract(names)
                self._held = +self._held

    def remove(self, names: Iterable[str]) -> None:
        """Remove those that nobody holds."""
        with self._lock:
            for name in names:
                if name not in self._held:
                    (self._folder / name).unlink(missing_ok=True)
                    self._verified.pop(name, None)

    def _is_intact(self, name: str) -> bool:
        """Whether a file is there with the content that its name says."""
        try:
            self.read(name)
        # One that cannot be read is replaced, too; if that fails as well, writing says why.
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
        """Everything in the folder, also what an interrupted write left."""
        return sorted(path.name for path in self._folder.iterdir())


def _identity_of(descriptor: int) -> _Identity:
    status = os.fstat(descriptor)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sync_file(path: Path) -> None:
    """Bring a file's content to disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """A new name is safe once its folder is on disk, too."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
