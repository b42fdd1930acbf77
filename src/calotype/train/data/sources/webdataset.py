"""WebDataset tar shards as a source: random access to every sample of every shard.

Members are read by offset from files that are never written, so workers can share open files. A caption is a
text member, or `caption` or `text` of a JSON member, whose `captions` may list several.
"""

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from calotype.models.files.safe_open import OpenedFile, open_regular
from calotype.train.data.bad_samples import BadSample, CorruptSampleError, DataError
from calotype.train.data.image_transforms import HEADER_BYTES, Size, size_in
from calotype.train.data.sources.captions import UTF8
from calotype.train.data.sources.file_pool import OpenFiles
from calotype.train.data.sources.npy import tensors_in
from calotype.train.data.sources.tar_index import CAPTION, JSON_CAPTION, LATENTS, PICTURE, index_shard
from calotype.train.data.types import Sample, Text

MAX_MEMBER_BYTES = 2**30


class WebDatasetSource:
    """The samples of all shards, shard after shard."""

    empty_text: Text | None = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self._shards = [index_shard(path) for path in paths]
        self._ends = list(accumulate(len(shard) for shard in self._shards))
        # The same for all shards, so that every batch holds the same kind of tensors.
        self._encoded = any(shard.has(LATENTS) for shard in self._shards)
        self._files = OpenFiles(self._open)

    @property
    def identity(self) -> str:
        """From the shards' names and member offsets, so that copies elsewhere have the same identity."""
        digest = hashlib.sha256()
        for shard in self._shards:
            digest.update(shard.path.name.encode() + b"\0")
            digest.update(shard.rows.numpy().tobytes())
        return digest.hexdigest()

    @property
    def damage(self) -> tuple[BadSample, ...]:
        return tuple(unreadable for shard in self._shards for unreadable in shard.damage)

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> Sample:
        number, row = self._place(index)
        shard = self._shards[number]
        name = f"{shard.path.name}:{shard.key(row)}"
        caption, captions = self._read_captions(number, row, name)
        content = self._member(number, row, LATENTS if self._encoded else PICTURE, name)
        if content is None:
            raise CorruptSampleError(name, f"has no {'latents' if self._encoded else 'picture'}")
        if not self._encoded:
            return Sample(name, picture=content, caption=caption, captions=captions)
        tensors = tensors_in(content, name)
        return Sample(
            name,
            caption=caption,
            captions=captions,
            latents=tensors.get("latents"),
            context=tensors.get("context"),
            pooled=tensors.get("pooled"),
        )

    def size_of(self, index: int) -> Size | None:
        number, row = self._place(index)
        place = self._shards[number].member(row, PICTURE)
        if place is None or sum(place) > self._shards[number].size_bytes:
            return None
        begin, length = place
        file = self._files.get(number)
        start = file.read_at(begin, min(length, HEADER_BYTES))
        return size_in(start) or (size_in(file.read_at(begin, length)) if length > HEADER_BYTES else None)

    def close(self) -> None:
        self._files.close()

    def _place(self, index: int) -> tuple[int, int]:
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)

    def _open(self, number: int) -> OpenedFile:
        shard = self._shards[number]
        file = open_regular(shard.path)
        if (file.size_bytes, os.fstat(file.fd).st_mtime_ns) != (shard.size_bytes, shard.mtime_ns):
            file.close()
            raise DataError(shard.path, "changed since the run began; start again to index it anew")
        return file

    def _read_captions(self, number: int, row: int, name: str) -> tuple[str | None, tuple[str, ...]]:
        """The caption, and the list of captions if there are several."""
        text = self._member(number, row, CAPTION, name)
        if text is not None:
            return _decode(text, name), ()
        text = self._member(number, row, JSON_CAPTION, name)
        return (None, ()) if text is None else _captions_from_json(_decode(text, name), name)

    def _member(self, number: int, row: int, role: int, name: str) -> bytes | None:
        place = self._shards[number].member(row, role)
        if place is None:
            return None
        (begin, length), end = place, self._shards[number].size_bytes
        if begin + length > end:
            raise CorruptSampleError(
                name, f"is cut off: it lies up to byte {begin + length}, the shard ends at {end}"
            )
        if length > MAX_MEMBER_BYTES:
            raise CorruptSampleError(name, f"has {length} bytes, the limit is {MAX_MEMBER_BYTES}")
        try:
            return self._files.get(number).read_at(begin, length)
        except OSError as error:
            raise CorruptSampleError(name, f"cannot be read: {error.strerror}") from error


def _decode(text: bytes, name: str) -> str:
    try:
        return text.decode(UTF8).strip()
    except UnicodeDecodeError as error:
        raise CorruptSampleError(
            name, f"its caption is not UTF-8 text (byte {error.start} is wrong)"
        ) from None


def _captions_from_json(text: str, name: str) -> tuple[str | None, tuple[str, ...]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptSampleError(name, f"its JSON cannot be read: {error}") from None
    if not isinstance(values, dict):
        return None, ()
    text_value, several = values.get("caption", values.get("text")), values.get("captions")
    caption = text_value.strip() if isinstance(text_value, str) else None
    # Other datasets use this field for other values.
    if not isinstance(several, list) or not all(isinstance(one, str) and one.strip() for one in several):
        several = []
    return caption, tuple(one.strip() for one in several)
