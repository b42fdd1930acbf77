"""Write precomputed latents and embeddings, and resume after an interruption.

A shard is written atomically and then named in the index: only shards in the index count. Samples that a
killed process had not written, or not named, are computed again; everything before them stays.
"""

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from calotype.train.data.bad_samples import DataError
from calotype.train.data.precomputed.index import (
    NAME,
    FinishedShard,
    PrecomputedIndex,
    Provenance,
    part_folder,
)
from calotype.train.data.precomputed.shard import EMPTY_TEXT, write_shard, write_text
from calotype.train.data.types import Batch, Sample, Text


class PrecomputedWriter:
    """Use it as a context manager: an exit without an error finishes the folder, otherwise it can resume."""

    def __init__(
        self,
        folder: Path,
        made_by: Provenance,
        *,
        samples_per_shard: int = 1024,
        part: int = 0,
        num_parts: int = 1,
        empty_text: Text | None = None,
    ) -> None:
        """`part` of `num_parts` is this process's; `empty_text` is stored for caption dropout in training."""
        if samples_per_shard < 1:
            raise ValueError(f"samples_per_shard is {samples_per_shard}, it must be positive")
        self._folder = part_folder(folder, part, num_parts)
        self._samples_per_shard = samples_per_shard
        self._pending: list[Sample] = []
        self._index = PrecomputedIndex(made_by, part, num_parts)
        if (self._folder / NAME).exists():
            self._index = _load_index(self._folder, self._index)
        self._last_position = (self.next_position or 0) - 1
        if empty_text is not None:
            write_text(self._folder / EMPTY_TEXT, empty_text)

    @property
    def next_position(self) -> int | None:
        """Where to resume: the position after the last safe sample. None if there is none."""
        return self._index.shards[-1].last_position + 1 if self._index.shards else None

    @property
    def num_samples(self) -> int:
        """Samples that are safely on the disk."""
        return self._index.num_samples

    @property
    def finished(self) -> bool:
        """Whether an earlier process has finished this part."""
        return self._index.finished

    def add(
        self, batch: Batch, latents: Tensor, context: Tensor | None = None, pooled: Tensor | None = None
    ) -> None:
        """Store the results for `batch`, whose positions must follow those of earlier batches."""
        if batch.positions[0] <= self._last_position:
            raise ValueError(
                f"position {batch.positions[0]} comes after {self._last_position}; keep the order"
            )
        outputs = {"latents": latents, "context": context, "pooled": pooled}
        on_cpu = {name: tensor.detach().cpu() for name, tensor in outputs.items() if tensor is not None}
        for row, key in enumerate(batch.keys):
            size = None if batch.sizes is None else tuple(batch.sizes[row].tolist())
            tensors: dict[str, Any] = {name: tensor[row] for name, tensor in on_cpu.items()}
            self._pending.append(Sample(key, caption=batch.captions[row], size=size, **tensors))
            self._last_position = batch.positions[row]
            if len(self._pending) == self._samples_per_shard:
                self._write_pending()

    def finish(self) -> None:
        """Write the remaining samples as a last, smaller shard, and mark the part as finished."""
        if self._pending:
            self._write_pending()
        self._index = replace(self._index, finished=True)
        self._index.write(self._folder)

    def _write_pending(self) -> None:
        name = f"shard-{len(self._index.shards):06d}.safetensors"
        write_shard(self._folder / name, self._pending, self._index.made_by.as_metadata())
        self._index = self._index.with_shard(FinishedShard(name, len(self._pending), self._last_position))
        self._index.write(self._folder)
        self._pending = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()


def _load_index(folder: Path, wanted: PrecomputedIndex) -> PrecomputedIndex:
    index = PrecomputedIndex.read(folder)
    found, requested = (f"{i.made_by}, part {i.part} of {i.num_parts}" for i in (index, wanted))
    if found != requested:
        rule = f"holds results of other settings: {found}, but this run needs {requested}"
        raise DataError(folder, f"{rule}; use an empty folder")
    return index
