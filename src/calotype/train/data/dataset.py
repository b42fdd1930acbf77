"""Build one micro-batch by its number: choose, read and prepare its samples. Runs in any process.

The result depends on the number alone, so any worker can build it. Errors are part of the result, because an
exception loses its type and attributes on its way between processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from calotype.core.errors import CalotypeError
from calotype.train.data.bad_samples import BadSample, CorruptSampleError
from calotype.train.data.batch_sampler import BatchSampler
from calotype.train.data.collate import Collator, PreparedSample, stack_samples
from calotype.train.data.types import Batch, Source


@dataclass(frozen=True)
class Delivery:
    """The result for one micro-batch."""

    batch: Batch | None
    """None if no sample could be read."""
    unreadable: tuple[BadSample, ...] = ()
    failure: str | None = None
    """Why there is no batch at all."""
    visits: Tensor | None = None
    """(n, 2) int64 for cached images: the row of each, and 1 if it is mirrored."""

    def pin_memory(self) -> Self:
        """Called by torch's loader, in its pinning thread."""
        visits = None if self.visits is None else self.visits.pin_memory()
        return replace(self, batch=self.batch.pin() if self.batch else None, visits=visits)


@dataclass
class _MicroBatchBuilder:
    """A micro-batch under construction."""

    rows: list[PreparedSample] = field(default_factory=list)
    unreadable: dict[str, BadSample] = field(default_factory=dict)
    num_failed_in_a_row: int = 0


class MicroBatchDataset(Dataset[Delivery]):
    """Every micro-batch of this rank by number, endless."""

    def __init__(
        self, source: Source, batch_sampler: BatchSampler, collator: Collator, micro_batch_size: int
    ) -> None:
        self._source, self._batch_sampler, self._collator = source, batch_sampler, collator
        self._size = micro_batch_size

    def __getitem__(self, number: int) -> Delivery:
        builder = _MicroBatchBuilder()
        try:
            failure = self._fill(number, builder)
        except CalotypeError as error:
            failure = str(error)
        unreadable = tuple(builder.unreadable.values())
        if not builder.rows or failure is not None:
            return Delivery(None, unreadable, failure)
        visits = [row.visit for row in builder.rows if row.visit is not None]
        visit_rows = torch.tensor(visits, dtype=torch.int64) if visits else None
        return Delivery(stack_samples(builder.rows), unreadable, visits=visit_rows)

    def _fill(self, number: int, builder: _MicroBatchBuilder) -> str | None:
        """Read until the micro-batch is full or the samples end; returns the reason if it gave up."""
        for sample_ref in self._batch_sampler.samples(number):
            try:
                builder.rows.append(self._collator.prepare(self._source.read(sample_ref.index), sample_ref))
                builder.num_failed_in_a_row = 0
            except CorruptSampleError as error:
                builder.unreadable[error.name] = BadSample(error.name, error.reason)
                builder.num_failed_in_a_row += 1
            if len(builder.rows) == self._size:
                return None
            if len(builder.unreadable) > self._collator.part.most_corrupt:
                return "too many unreadable samples"
            # Any run of twice the number of samples contains a whole epoch.
            if builder.num_failed_in_a_row >= 2 * sample_ref.num_candidates:
                return _all_unreadable(sample_ref.num_candidates, list(builder.unreadable.values()))
        return None


def _all_unreadable(num_candidates: int, unreadable: Sequence[BadSample]) -> str:
    return f"none of {num_candidates} samples can be read, for instance {unreadable[0]}"
