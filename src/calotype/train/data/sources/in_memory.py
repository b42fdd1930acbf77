"""Every picture decoded once and kept as bytes, so that a batch is a matter of picking rows; or kept encoded.

Which samples are read when, what is said of them and which cannot be read is decided as without it: here is
only a source that has read everything already, and the rows it speaks of. Knows nothing of the order.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from calotype.core.errors import CalotypeError, DoesNotFitError
from calotype.core.hardware import read_memory
from calotype.core.progress import Progress, Silent
from calotype.train.data.bad_samples import BadSample, CorruptSampleError, DataError
from calotype.train.data.batch_sampler import SampleRef
from calotype.train.data.collate import Collator
from calotype.train.data.dataset import Delivery
from calotype.train.data.image_transforms import Size
from calotype.train.data.types import CachedImage, Sample, Source, Text, as_numbers
from calotype.train.data.workers import loaded

_log = logging.getLogger(__name__)

_PER_PIECE = 64
_MAX_OF_DEVICE = 0.1
"""Of the GPU's free memory; the rest is the training's."""
_MAX_OF_MEMORY = 0.8


Encode = Callable[[Tensor], Tensor]
"""From (n, 3, height, width) pixels to the moments of their latents, both where the model is."""


class CacheBackend(Protocol):
    """What was decoded or encoded beforehand."""

    def put_into(self, delivery: Delivery) -> Delivery:
        """The delivery with what its visits speak of."""
        ...


class InMemorySource:
    """A source that was read whole: what it says of a sample is at hand, the picture is a row elsewhere."""

    def __init__(self, source: Source, entries: Sequence[Sample | BadSample]) -> None:
        self._source, self._entries = source, entries

    @property
    def identity(self) -> str:
        return self._source.identity

    @property
    def damage(self) -> Sequence[BadSample]:
        return self._source.damage

    @property
    def empty_text(self) -> Text | None:
        return self._source.empty_text

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, index: int) -> Sample:
        entry = self._entries[index]
        if isinstance(entry, BadSample):
            raise CorruptSampleError(entry.name, entry.reason)
        return entry

    def size_of(self, index: int) -> Size | None:
        return self._source.size_of(index)

    def close(self) -> None:
        self._source.close()


@dataclass(frozen=True)
class CachedImages:
    """(num samples, 3, height, width) bytes, a row for each sample; those of unreadable ones mean nothing."""

    rows: Tensor
    mirrored: bool
    """Whether some visits want pictures mirrored."""
    pinned: bool
    """Whether batches are wanted in page-locked memory."""

    def put_into(self, delivery: Delivery) -> Delivery:
        """The delivery with the pictures its visits speak of."""
        if delivery.batch is None or delivery.visits is None:
            return delivery
        visits = delivery.visits.to(self.rows.device, non_blocking=True)
        picked = self._picked(visits[:, 0])
        if self.mirrored:
            wanted = visits[:, 1, None, None, None].bool()
            torch.where(wanted, picked.flip(-1), picked, out=picked)
        return replace(delivery, batch=replace(delivery.batch, pixel_bytes=picked), visits=None)

    def _picked(self, which: Tensor) -> Tensor:
        if self.rows.device.type != "cpu":
            return self.rows.index_select(0, which)
        picked = torch.empty((len(which), *self.rows.shape[1:]), dtype=torch.uint8, pin_memory=self.pinned)
        # Torch would wake its threads for each row, which on busy cores takes far longer than the copying.
        # "clip" has nothing to clip: it is how numpy writes into place.
        np.take(self.rows.numpy(), which.numpy(), axis=0, out=picked.numpy(), mode="clip")
        return picked


@dataclass(frozen=True)
class CachedMoments:
    """(num samples, 2, channels, height, width), a row for each sample, on the training's device."""

    rows: Tensor

    def put_into(self, delivery: Delivery) -> Delivery:
        """The delivery with the moments its visits speak of."""
        if delivery.batch is None or delivery.visits is None:
            return delivery
        which = delivery.visits[:, 0].to(self.rows.device, non_blocking=True)
        moments = self.rows.index_select(0, which)
        return replace(delivery, batch=replace(delivery.batch, moments=moments), visits=None)


def encode_all(
    pictures: CachedImages,
    encode: Encode,
    device: torch.device,
    at_once: int,
    progress: Progress | None = None,
) -> CachedMoments:
    """What the autoencoder makes of every picture; `at_once` is the number of pictures it is compiled for."""
    watched, count = progress or Silent(), len(pictures.rows)
    watched.start("encode", count)
    rows: Tensor | None = None
    for place in range(0, count, at_once):
        # The last ones again rather than fewer: another number would be compiled for anew.
        begin = max(0, min(place, count - at_once))
        pixels = as_numbers(pictures.rows[begin : begin + at_once].to(device))
        moments = encode(pixels)
        rows = moments.new_empty((count, *moments.shape[1:])) if rows is None else rows
        rows[begin : begin + at_once] = moments
        watched.advance(min(at_once, count - place))
    assert rows is not None
    return CachedMoments(rows)


def cache_all(
    source: Source, preparation: Collator, progress: Progress | None = None
) -> tuple[InMemorySource, CachedImages]:
    """Read and decode everything, on all of the recipe's workers."""
    part, needs, watched = preparation.part, preparation.needs, progress or Silent()
    size = (needs.resolution, needs.resolution)
    device = _place_for(len(source), size, needs.device)
    rows = torch.empty((len(source), 3, *size), dtype=torch.uint8, device=device)
    pieces = _Pieces(source, preparation, size)
    entries: list[Sample | BadSample] = []
    watched.start("decode", len(source))
    for piece in loaded(pieces, range(len(pieces)), part.num_workers):
        if piece.failure is not None:
            raise DataError("data", piece.failure)
        rows[len(entries) : len(entries) + len(piece.entries)] = piece.pixels
        entries += piece.entries
        watched.advance(len(piece.entries))
    pinned = needs.device.type == "cuda" and device.type == "cpu"
    return InMemorySource(source, entries), CachedImages(rows, part.random_flip, pinned)


@dataclass(frozen=True)
class _Piece:
    """A few samples in the order they are stored."""

    entries: tuple[Sample | BadSample, ...]
    pixels: Tensor
    failure: str | None = None
    """Why nothing can be kept at all."""


class _Pieces(Dataset[_Piece]):
    """All samples, piece by piece; whatever goes wrong is part of the answer, as for micro-batches."""

    def __init__(self, source: Source, preparation: Collator, size: Size) -> None:
        # Mirroring is up to each visit.
        plain = preparation.part.model_copy(update={"random_flip": False})
        self._source, self._preparation, self._size = source, replace(preparation, part=plain), size

    def __len__(self) -> int:
        return ceil(len(self._source) / _PER_PIECE)

    def __getitem__(self, number: int) -> _Piece:
        begin = number * _PER_PIECE
        span = range(begin, min(begin + _PER_PIECE, len(self._source)))
        pixels = torch.zeros((len(span), 3, *self._size), dtype=torch.uint8)
        try:
            entries = tuple(self._read(index, row) for index, row in zip(span, pixels.numpy(), strict=True))
        except CalotypeError as error:
            return _Piece((), pixels, str(error))
        return _Piece(entries, pixels)

    def _read(self, index: int, row: np.ndarray) -> Sample | BadSample:
        """What there is to say of the sample; its picture goes into `row`."""
        pick = SampleRef(index, index, self._size, draw=0, num_candidates=len(self._source))
        try:
            sample = self._source.read(index)
            prepared = self._preparation.prepare(sample, pick)
        except CorruptSampleError as error:
            return BadSample(error.name, error.reason)
        if prepared.pixels is None:
            rule = "holds latents, data.in_memory keeps pictures; set data.in_memory=false"
            raise DataError(sample.key, rule)
        row[:] = prepared.pixels.numpy()
        return replace(sample, picture=None, kept=CachedImage(index, prepared.size))


def _place_for(count: int, size: Size, device: torch.device) -> torch.device:
    """Where so many pictures are kept: beside the training if they take little of it, else in main memory."""
    needed = count * 3 * size[0] * size[1]
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if needed <= _MAX_OF_DEVICE * free:
            _log.info("pictures are kept on %s: %s of %s free", device, _shown(needed), _shown(free))
            return device
    # Every process of a node keeps all of them.
    needed *= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    available = read_memory().available_bytes
    if available is not None and needed > _MAX_OF_MEMORY * available:
        what = f"data.in_memory: {count} pictures of {size[1]}×{size[0]} need {_shown(needed)} on this node"
        room = f"{_shown(available)} are free, of which at most {_MAX_OF_MEMORY:.0%} are taken"
        raise DoesNotFitError(f"{what}; {room}; set data.in_memory=false to decode as it goes")
    _log.info("pictures are kept in main memory: %s on this node", _shown(needed))
    return torch.device("cpu")


def _shown(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"
