"""Worker processes that make things by number, in order. Knows nothing of what they make."""

import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from calotype.train.data.report import DataError
from calotype.train.data.worker_signals import heed_parent_only, held_back

_log = logging.getLogger(__name__)

_PREFETCHED_PER_WORKER = 2
Thing = TypeVar("Thing")


def loaded(
    dataset: Dataset[Thing], numbers: Iterable[int], num_workers: int, *, pin: bool = False
) -> Iterator[Thing]:
    """`dataset[number]` for each number. Workers start at once, and stop when the iterator is let go of."""
    cores = len(os.sched_getaffinity(0))
    if num_workers > cores:
        _log.warning("data.num_workers=%d is more than the %d cores there are", num_workers, cores)
    with warnings.catch_warnings(), held_back():
        # Torch says the same at greater length.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(
            dataset,
            batch_size=None,
            sampler=numbers,
            num_workers=num_workers,
            prefetch_factor=_PREFETCHED_PER_WORKER if num_workers else None,
            collate_fn=_as_it_is,
            pin_memory=pin,
            worker_init_fn=heed_parent_only,
            # Without one of its own, the loader would draw from the generator the training draws from.
            generator=torch.Generator(),
        )
        return _explained(iter(loader))


def _explained(things: Iterator[Thing]) -> Iterator[Thing]:
    try:
        yield from things
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        fix = "if memory ran out, lower data.num_workers or give the container a larger /dev/shm"
        raise DataError("data.num_workers", f"a worker process died: {error}; {fix}") from error


def _as_it_is(thing: Thing) -> Thing:
    return thing
