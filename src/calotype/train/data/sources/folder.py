"""A folder of images with captions as a source."""

import hashlib
import os
from pathlib import Path

from calotype.core.errors import NotFoundError
from calotype.train.data.bad_samples import BadSample, CorruptSampleError, DataError
from calotype.train.data.image_transforms import HEADER_BYTES, Size, size_in
from calotype.train.data.sources.captions import CAPTIONS, METADATA, Captions
from calotype.train.data.sources.folder_tree import folders_in
from calotype.train.data.types import Sample, Text

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
MAX_IMAGE_BYTES = 2**30


class FolderSource:
    """Every image under a folder, by name."""

    empty_text: Text | None = None

    def __init__(self, folder: Path, *, captions_needed: bool = True) -> None:
        if not folder.is_dir():
            kind = "is a file, not a folder" if folder.exists() else "does not exist"
            raise NotFoundError(f"data.path: {folder} {kind}")
        self._folder = folder
        found = _pictures_in(folder)
        self._names = [name for name, _ in found]
        self.identity = hashlib.sha256(repr(found).encode(errors="surrogateescape")).hexdigest()
        if not self._names:
            raise DataError(folder, f"holds no images; looked for {', '.join(SUFFIXES)} in it and below")
        self._captions = Captions(folder)
        if captions_needed and not any(self._captions.has(name) for name in self._names):
            ways = f"a .txt beside each, a {METADATA} or a {CAPTIONS}; or set data.default_caption"
            raise DataError(folder, f"has {len(self._names)} images and no caption for any; write {ways}")
        known = set(self._names)
        self.damage = tuple(
            BadSample(name, "has a caption, but the image does not exist")
            for name in self._captions.names
            if name not in known
        )

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> Sample:
        name = self._names[index]
        return Sample(name, picture=self._bytes(name), caption=self._captions.of(name))

    def size_of(self, index: int) -> Size | None:
        name = self._names[index]
        try:
            return size_in(self._bytes(name, HEADER_BYTES)) or size_in(self._bytes(name))
        except CorruptSampleError:
            return None

    def close(self) -> None:
        """Nothing stays open."""

    def _bytes(self, name: str, at_most: int = MAX_IMAGE_BYTES) -> bytes:
        try:
            with (self._folder / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_IMAGE_BYTES:
                    raise CorruptSampleError(name, f"has {size} bytes, the limit is {MAX_IMAGE_BYTES}")
                return file.read(at_most)
        except OSError as error:
            raise CorruptSampleError(name, f"cannot be read: {error.strerror}") from error


def _pictures_in(folder: Path) -> list[tuple[str, int]]:
    """Names and sizes in bytes; sorted by code points, so that the order is the same on every machine."""
    found = []
    for place, files in folders_in(folder):
        for name in files:
            path = place / name
            # A link may be broken: reading it finds and reports that.
            if name.lower().endswith(SUFFIXES):
                size = path.stat().st_size if path.exists() else 0
                found.append((path.relative_to(folder).as_posix(), size))
    return sorted(found)
