"""Pictures as files named by their content: whole on disk, or not there. Knows nothing of jobs."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from calotype.core.paths import written_whole


def name_of(data: bytes) -> str:
    """The SHA-256 of a file's content, which is its name."""
    return hashlib.sha256(data).hexdigest()


def named(pieces: Sequence[bytes]) -> dict[str, bytes]:
    """Files by their names."""
    return {name_of(data): data for data in pieces}


class PictureFiles:
    """A folder of such files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, files: Mapping[str, bytes]) -> None:
        """Bring all to disk, by name; one that is there already stays.

        Synced after they have their names: the folder's own sync has little left to do then. What a loss of
        power leaves before that belongs to nobody yet, and is swept away when the queue is opened.
        """
        for name, data in files.items():
            path = self._folder / name
            if not path.exists():
                with written_whole(path, synced=False) as file:
                    file.write(data)
            # Also one that was there: another thread may be just here with it.
            _sync(path, os.O_RDONLY)
        sync_folder(self._folder)

    @contextmanager
    def held(self, names: Collection[str]) -> Iterator[None]:
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

    def names(self) -> list[str]:
        """Everything in the folder, also what an interrupted write left."""
        return sorted(path.name for path in self._folder.iterdir())


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
