"""MosaicML's MDS format as a source: a folder with an index.json and shards.

Plain local shards are read here, because the format is small and its own package cannot be installed beside
Calotype without overriding version pins. Compressed and remote shards use that package, in `mds_streaming`.
"""

import hashlib
import json
import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from PIL import Image

from calotype.core.errors import CalotypeError, ModelFileError, RequestError
from calotype.core.paths import check_name
from calotype.models.files.safe_open import OpenedFile, open_regular
from calotype.train.data.bad_samples import BadSample, CorruptSampleError, DataError
from calotype.train.data.image_transforms import Size, size_in
from calotype.train.data.sources.captions import UTF8
from calotype.train.data.sources.file_pool import OpenFiles
from calotype.train.data.types import Sample, Text

INDEX = "index.json"
VERSION = 2
IMAGE_COLUMNS = ("image", "picture", "jpg", "jpeg", "png", "webp")
CAPTION_COLUMNS = ("caption", "text", "txt")
_FILE_ENCODINGS = ("bytes", "jpeg", "png")
_NUMBER = struct.Struct("<I")


@dataclass(frozen=True)
class MdsShard:
    """The index entry of one shard."""

    file: str
    num_samples: int
    compressed: bool
    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]
    """The size of each column in bytes; None if it varies by sample and each sample stores it."""
    num_bytes: int
    hashes: tuple[tuple[str, str], ...]
    """Digests of the whole file by hash function; the writer creates none by default."""

    def columns_of(self, data: bytes) -> dict[str, tuple[str, bytes]]:
        """Encoding and bytes of each column: the variable sizes come first, then the values."""
        position = 0
        sizes: list[int] = []
        for size in self.sizes:
            if size is not None:
                sizes.append(size)
                continue
            sizes += _NUMBER.unpack_from(data, position)
            position += _NUMBER.size
        if position + sum(sizes) != len(data):
            raise ValueError(f"its columns take {position + sum(sizes)} bytes, {len(data)} are there")
        columns = {}
        for name, encoding, size in zip(self.names, self.encodings, sizes, strict=True):
            columns[name] = (encoding, data[position : position + size])
            position += size
        return columns


class MdsSamples(ABC):
    """Common base of plain and streamed MDS: images with captions, and nothing known in advance."""

    damage: tuple[BadSample, ...] = ()
    empty_text: Text | None = None

    @abstractmethod
    def read(self, index: int) -> Sample: ...

    def size_of(self, index: int) -> Size | None:
        try:
            picture = self.read(index).picture
        except CorruptSampleError:
            return None
        if isinstance(picture, Image.Image):
            return picture.height, picture.width
        return None if picture is None else size_in(picture)


class MdsSource(MdsSamples):
    """Every sample of every plain shard."""

    def __init__(self, folder: Path, shards: list[MdsShard]) -> None:
        self._folder, self._shards = folder, shards
        self._ends = list(accumulate(shard.num_samples for shard in shards))
        self._files = OpenFiles(self._open)

    @cached_property
    def identity(self) -> str:
        """A digest of the index, and of the sample offsets of shards that have no digests."""
        digest = hashlib.sha256(repr(self._shards).encode())
        for number, shard in enumerate(self._shards):
            if not shard.hashes:
                digest.update(self._offsets(number))
        return digest.hexdigest()

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> Sample:
        number = bisect_right(self._ends, index)
        row = index - (self._ends[number - 1] if number else 0)
        shard = self._shards[number]
        name = f"{shard.file}:{row}"
        try:
            file = self._files.get(number)
            begin, end = struct.unpack("<II", file.read_at(_NUMBER.size * (row + 1), 2 * _NUMBER.size))
            columns = shard.columns_of(file.read_at(begin, max(end - begin, 0)))
            return Sample(name, picture=_picture(columns), caption=_caption(columns))
        except (ValueError, struct.error, OSError) as error:
            raise CorruptSampleError(name, f"cannot be read: {error}") from None
        except ModelFileError as error:
            raise CorruptSampleError(name, f"cannot be read: the shard {error.rule}") from None

    def close(self) -> None:
        self._files.close()

    def _offsets(self, number: int) -> bytes:
        """The offset of each sample of a shard and its end; empty if the shard cannot be read."""
        try:
            with self._open(number) as file:
                return file.read_at(_NUMBER.size, _NUMBER.size * (self._shards[number].num_samples + 1))
        except (CalotypeError, OSError):
            # Reading any of its samples reports the error.
            return b""

    def _open(self, number: int) -> OpenedFile:
        return open_regular(self._folder / self._shards[number].file)


def read_mds_index(folder: Path) -> list[MdsShard]:
    """The shards that a folder's index lists."""
    file = folder / INDEX
    if not file.is_file():
        raise DataError(folder, f"holds no {INDEX}: it is not an MDS dataset")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        shards = [_listed(entry) for entry in values["shards"]]
    except (ValueError, KeyError, TypeError, AttributeError, RequestError) as error:
        raise DataError(file, f"is not an MDS index ({error!r})") from None
    if not sum(shard.num_samples for shard in shards):
        raise DataError(file, "lists no samples")
    return shards


def _listed(entry: Mapping[str, Any]) -> MdsShard:
    if (entry["format"], entry["version"]) != ("mds", VERSION):
        raise ValueError(
            f"format {entry['format']!r} version {entry['version']}, only mds {VERSION} is known"
        )
    check_name("basename", entry["raw_data"]["basename"])
    return MdsShard(
        file=entry["raw_data"]["basename"],
        num_samples=int(entry["samples"]),
        compressed=entry["zip_data"] is not None,
        names=tuple(entry["column_names"]),
        encodings=tuple(entry["column_encodings"]),
        sizes=tuple(entry["column_sizes"]),
        num_bytes=int(entry["raw_data"]["bytes"]),
        hashes=tuple(sorted(entry["raw_data"]["hashes"].items())),
    )


def _picture(columns: Mapping[str, tuple[str, bytes]]) -> bytes | Image.Image:
    found = _first(columns, IMAGE_COLUMNS)
    if found is None:
        known = ", ".join(IMAGE_COLUMNS)
        raise ValueError(f"no column is an image: it has {', '.join(columns)}; known are {known}")
    encoding, data = found
    if encoding in _FILE_ENCODINGS:
        return data
    if encoding != "pil":
        raise ValueError(f"its image is encoded as {encoding!r}, known are {', '.join(_FILE_ENCODINGS)}, pil")
    width, height, mode_bytes = struct.unpack_from("<III", data)
    start = 3 * _NUMBER.size + mode_bytes
    return Image.frombytes(data[3 * _NUMBER.size : start].decode(), (width, height), data[start:])


def _caption(columns: Mapping[str, tuple[str, bytes]]) -> str | None:
    found = _first(columns, CAPTION_COLUMNS)
    if found is None:
        return None
    encoding, data = found
    if encoding not in ("str", "bytes"):
        raise ValueError(f"its caption is encoded as {encoding!r}, known are str, bytes")
    return data.decode(UTF8).strip()


def _first(columns: Mapping[str, tuple[str, bytes]], names: tuple[str, ...]) -> tuple[str, bytes] | None:
    return next((columns[name] for name in names if name in columns), None)
