"""Worker processes that load dataset items by number, in order."""

import logging
import os
import signal
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from threading import Thread
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from calotype.train.data.bad_samples import DataError

_MAIN_PROCESS_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Processes started within inherit blocked signals from their first instruction on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _MAIN_PROCESS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals_in_worker(_: int) -> None:
    """Runs in each worker at its start; only a SIGTERM from the parent ends the worker."""
    Thread(target=_wait_for_parent, args=(os.getppid(),), name="signals", daemon=True).start()


def _wait_for_parent(parent: int) -> None:
    while True:
        if signal.sigwaitinfo([signal.SIGTERM]).si_pid == parent:
            os._exit(0)


_log = logging.getLogger(__name__)

_PREFETCHED_PER_WORKER = 2
_NOT_SHARED = "no shared memory for what was made"
Thing = TypeVar("Thing")


def loaded(
    dataset: Dataset[Thing], numbers: Iterable[int], num_workers: int, *, pin: bool = False
) -> Iterator[Thing]:
    """`dataset[number]` for each number. Workers start at once, and stop when the iterator is freed."""
    cores = len(os.sched_getaffinity(0))
    if num_workers > cores:
        _log.warning("data.num_workers=%d is more than the %d cores there are", num_workers, cores)
    with warnings.catch_warnings(), defer_signals():
        # torch would repeat this warning at greater length.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(
            dataset,
            batch_size=None,
            sampler=numbers,
            num_workers=num_workers,
            prefetch_factor=_PREFETCHED_PER_WORKER if num_workers else None,
            collate_fn=_share_in_worker,
            pin_memory=pin,
            worker_init_fn=ignore_signals_in_worker,
            # Without its own generator the loader would draw from the one that training uses.
            generator=torch.Generator(),
        )
        return _with_clear_errors(iter(loader))


def _with_clear_errors(items: Iterator[Thing]) -> Iterator[Thing]:
    try:
        yield from items
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        if _NOT_SHARED in str(error):
            # torch reports the worker's whole traceback; the worker's own message is at its end.
            reason = str(error).rpartition(_NOT_SHARED)[2].strip(": \n")
            fix = "give the container a larger /dev/shm, lower data.num_workers, or set it to 0"
            message = f"there is no shared memory for batches: {reason}; {fix}"
            raise DataError("data.num_workers", message) from error
        fix = "if memory ran out, lower data.num_workers or give the container a larger /dev/shm"
        raise DataError("data.num_workers", f"a worker process died: {error}; {fix}") from error


def _share_in_worker(item: Thing) -> Thing:
    """Return the item; in a worker, first move its tensors to shared memory.

    torch would do that in a thread that only prints errors, and the item would never arrive.
    """
    if get_worker_info() is not None:
        try:
            _share(item)
        except RuntimeError as error:
            raise RuntimeError(f"{_NOT_SHARED}: {error}") from error
    return item


def _share(item: object) -> None:
    if isinstance(item, Tensor):
        item.share_memory_()
    elif is_dataclass(item):
        for field in fields(item):
            _share(getattr(item, field.name))
    elif isinstance(item, list | tuple):
        for element in item:
            _share(element)
