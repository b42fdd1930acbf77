"""Decode all images once and keep them in memory as bytes or as latents, so that a batch only selects rows.

The order of samples, their captions and the unreadable ones are the same as without the cache: this is only a
source that has already read everything, and the rows that it refers to.
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
"""Of the GPU's free memory; training needs the rest."""
_MAX_OF_MEMORY = 0.8


Encode = Callable[[Tensor], Tensor]
"""From (n, 3, height, width) pixels to the moments of their latents, both on the model's device."""


class CacheBackend(Protocol):
    """A cache of decoded or encoded images."""

    def put_into(self, micro_batch: Delivery) -> Delivery:
        """The micro-batch with the rows that its visits refer to."""
        ...


class InMemorySource:
    """A source that was read completely: samples are in memory, and images are rows of a cache."""

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
    """(num samples, 3, height, width) bytes, one row per sample; rows of unreadable samples are undefined."""

    rows: Tensor
    mirrored: bool
    """Whether some visits mirror the image."""
    pinned: bool
    """Whether batches are in pinned memory."""

    def put_into(self, micro_batch: Delivery) -> Delivery:
        """The micro-batch with the images that its visits refer to."""
        if micro_batch.batch is None or micro_batch.visits is None:
            return micro_batch
        visits = micro_batch.visits.to(self.rows.device, non_blocking=True)
        selected = self._select(visits[:, 0])
        if self.mirrored:
            wanted = visits[:, 1, None, None, None].bool()
            torch.where(wanted, selected.flip(-1), selected, out=selected)
        return replace(micro_batch, batch=replace(micro_batch.batch, pixel_bytes=selected), visits=None)

    def _select(self, which: Tensor) -> Tensor:
        if self.rows.device.type != "cpu":
            return self.rows.index_select(0, which)
        selected = torch.empty((len(which), *self.rows.shape[1:]), dtype=torch.uint8, pin_memory=self.pinned)
        # torch would wake its threads for each row, which takes far longer than the copy on busy cores. With
        # mode="clip", which never clips here, numpy writes into `out` without a buffer.
        np.take(self.rows.numpy(), which.numpy(), axis=0, out=selected.numpy(), mode="clip")
        return selected


@dataclass(frozen=True)
class CachedMoments:
    """(num samples, 2, channels, height, width), one row per sample, on the training device."""

    rows: Tensor

    def put_into(self, micro_batch: Delivery) -> Delivery:
        """The micro-batch with the moments that its visits refer to."""
        if micro_batch.batch is None or micro_batch.visits is None:
            return micro_batch
        which = micro_batch.visits[:, 0].to(self.rows.device, non_blocking=True)
        moments = self.rows.index_select(0, which)
        return replace(micro_batch, batch=replace(micro_batch.batch, moments=moments), visits=None)


def encode_all(
    pictures: CachedImages,
    encode: Encode,
    device: torch.device,
    at_once: int,
    progress: Progress | None = None,
) -> CachedMoments:
    """Encode every image with the autoencoder; `at_once` is the batch size that it is compiled for."""
    progress_bar, count = progress or Silent(), len(pictures.rows)
    progress_bar.start("encode", count)
    rows: Tensor | None = None
    for place in range(0, count, at_once):
        # The last batch overlaps the one before it: a smaller batch would be compiled again.
        begin = max(0, min(place, count - at_once))
        pixels = as_numbers(pictures.rows[begin : begin + at_once].to(device))
        moments = encode(pixels)
        rows = moments.new_empty((count, *moments.shape[1:])) if rows is None else rows
        rows[begin : begin + at_once] = moments
        progress_bar.advance(min(at_once, count - place))
    assert rows is not None
    return CachedMoments(rows)


def cache_all(
    source: Source, collator: Collator, progress: Progress | None = None
) -> tuple[InMemorySource, CachedImages]:
    """Read and decode all samples with the recipe's workers."""
    part, needs, progress_bar = collator.part, collator.needs, progress or Silent()
    size = (needs.resolution, needs.resolution)
    device = _cache_device(len(source), size, needs.device)
    rows = torch.empty((len(source), 3, *size), dtype=torch.uint8, device=device)
    pieces = _Pieces(source, collator, size)
    entries: list[Sample | BadSample] = []
    progress_bar.start("decode", len(source))
    for piece in loaded(pieces, range(len(pieces)), part.num_workers):
        if piece.failure is not None:
            raise DataError("data", piece.failure)
        rows[len(entries) : len(entries) + len(piece.entries)] = piece.pixels
        entries += piece.entries
        progress_bar.advance(len(piece.entries))
    pinned = needs.device.type == "cuda" and device.type == "cpu"
    return InMemorySource(source, entries), CachedImages(rows, part.random_flip, pinned)


@dataclass(frozen=True)
class _Piece:
    """A few samples in the order they are stored."""

    entries: tuple[Sample | BadSample, ...]
    pixels: Tensor
    failure: str | None = None
    """Why nothing can be cached at all."""


class _Pieces(Dataset[_Piece]):
    """All samples in pieces; errors are part of the result, as for micro-batches."""

    def __init__(self, source: Source, collator: Collator, size: Size) -> None:
        # Each visit decides about mirroring.
        plain = collator.part.model_copy(update={"random_flip": False})
        self._source, self._collator, self._size = source, replace(collator, part=plain), size

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
        """Read a sample and write its pixels into `row`; the result is the sample without the image."""
        sample_ref = SampleRef(index, index, self._size, draw=0, num_candidates=len(self._source))
        try:
            sample = self._source.read(index)
            prepared = self._collator.prepare(sample, sample_ref)
        except CorruptSampleError as error:
            return BadSample(error.name, error.reason)
        if prepared.pixels is None:
            rule = "holds latents, data.in_memory caches images; set data.in_memory=false"
            raise DataError(sample.key, rule)
        row[:] = prepared.pixels.numpy()
        return replace(sample, picture=None, kept=CachedImage(index, prepared.size))


def _cache_device(count: int, size: Size, device: torch.device) -> torch.device:
    """The device of the cache: the GPU if the images take little of its memory, else main memory."""
    needed = count * 3 * size[0] * size[1]
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if needed <= _MAX_OF_DEVICE * free:
            _log.info("images are cached on %s: %s of %s free", device, _gib(needed), _gib(free))
            return device
    # Every process of a node caches all of them.
    needed *= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    available = read_memory().available_bytes
    if available is not None and needed > _MAX_OF_MEMORY * available:
        what = f"data.in_memory: {count} images of {size[1]}×{size[0]} need {_gib(needed)} on this node"
        room = f"{_gib(available)} are free, of which at most {_MAX_OF_MEMORY:.0%} are used"
        raise DoesNotFitError(f"{what}; {room}; set data.in_memory=false to decode during training")
    _log.info("images are cached in main memory: %s on this node", _gib(needed))
    return torch.device("cpu")


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"
