"""Micro-batch number so-and-so, whole: picked, read, prepared. Runs in a worker process or in the main one.

The answer depends on the number alone, so it does not matter which worker gives it. Whatever goes wrong is
part of the answer, because an exception loses its type and its names on the way between processes.
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
    """What became of one micro-batch."""

    batch: Batch | None
    """None when nothing could be read."""
    unreadable: tuple[BadSample, ...] = ()
    failure: str | None = None
    """Why there can be no batch at all."""
    visits: Tensor | None = None
    """(n, 2) int64, where pictures are kept elsewhere: the row of each, and 1 where it is wanted mirrored."""

    def pin_memory(self) -> Self:
        """Called by torch's loader, in a thread of its own."""
        visits = None if self.visits is None else self.visits.pin_memory()
        return replace(self, batch=self.batch.pin() if self.batch else None, visits=visits)


@dataclass
class _Filling:
    """A micro-batch on its way."""

    rows: list[PreparedSample] = field(default_factory=list)
    unreadable: dict[str, BadSample] = field(default_factory=dict)
    num_failed_in_a_row: int = 0


class MicroBatchDataset(Dataset[Delivery]):
    """Every micro-batch of this rank by number, without end."""

    def __init__(
        self, source: Source, plan: BatchSampler, preparation: Collator, micro_batch_size: int
    ) -> None:
        self._source, self._plan, self._preparation = source, plan, preparation
        self._size = micro_batch_size

    def __getitem__(self, number: int) -> Delivery:
        filling = _Filling()
        try:
            failure = self._fill(number, filling)
        except CalotypeError as error:
            failure = str(error)
        unreadable = tuple(filling.unreadable.values())
        if not filling.rows or failure is not None:
            return Delivery(None, unreadable, failure)
        visits = [row.visit for row in filling.rows if row.visit is not None]
        which = torch.tensor(visits, dtype=torch.int64) if visits else None
        return Delivery(stack_samples(filling.rows), unreadable, visits=which)

    def _fill(self, number: int, filling: _Filling) -> str | None:
        """Read until the micro-batch is full or the plan's picks end; why it gave up, if it did."""
        for pick in self._plan.samples(number):
            try:
                filling.rows.append(self._preparation.prepare(self._source.read(pick.index), pick))
                filling.num_failed_in_a_row = 0
            except CorruptSampleError as error:
                filling.unreadable[error.name] = BadSample(error.name, error.reason)
                filling.num_failed_in_a_row += 1
            if len(filling.rows) == self._size:
                return None
            if len(filling.unreadable) > self._preparation.part.most_corrupt:
                return "too many unreadable samples"
            # Twice the number of samples in a row has a whole epoch in it, wherever it began.
            if filling.num_failed_in_a_row >= 2 * pick.num_candidates:
                return _none_left(pick.num_candidates, list(filling.unreadable.values()))
        return None


def _none_left(num_candidates: int, unreadable: Sequence[BadSample]) -> str:
    return f"none of {num_candidates} samples can be read, for instance {unreadable[0]}"
