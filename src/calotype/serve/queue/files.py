"""Pictures as files named by their content: whole on disk, or not there. Knows nothing of jobs."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from calotype.core.paths import written_whole


def name_of(data: bytes) -> str:
    """The SHA-256 of a file's content, which is its name."""
    return hashlib.sha256(data).hexdigest()


class PictureFiles:
    """A folder of such files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, pieces: Sequence[bytes]) -> None:
        """Bring all to disk; one that is there already stays."""
        for data in pieces:
            path = self._folder / name_of(data)
            if not path.exists():
                with written_whole(path) as file:
                    file.write(data)
        if pieces:
            sync_folder(self._folder)

    @contextmanager
    def held(self, names: Sequence[str]) -> Iterator[None]:
        """Nothing of these is removed meanwhile: somebody is about to say that they are used."""
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


def sync_folder(folder: Path) -> None:
    """A new name is safe once its folder is on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
