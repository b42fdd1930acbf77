"""Worker processes that make things by number, in order. Knows nothing of what they make."""

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

_FOR_THE_MAIN_PROCESS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Processes started within are born with the signals blocked, so that no moment is left open."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_MAIN_PROCESS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals_in_worker(_: int) -> None:
    """Called in each worker as it starts."""
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
    """`dataset[number]` for each number. Workers start at once, and stop when the iterator is let go of."""
    cores = len(os.sched_getaffinity(0))
    if num_workers > cores:
        _log.warning("data.num_workers=%d is more than the %d cores there are", num_workers, cores)
    with warnings.catch_warnings(), defer_signals():
        # Torch says the same at greater length.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(
            dataset,
            batch_size=None,
            sampler=numbers,
            num_workers=num_workers,
            prefetch_factor=_PREFETCHED_PER_WORKER if num_workers else None,
            collate_fn=_ready_to_leave,
            pin_memory=pin,
            worker_init_fn=ignore_signals_in_worker,
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
        if _NOT_SHARED in str(error):
            # The worker's own words end what torch tells of it, which is its whole traceback.
            reason = str(error).rpartition(_NOT_SHARED)[2].strip(": \n")
            fix = "give the container a larger /dev/shm, lower data.num_workers, or set it to 0"
            raise DataError("data.num_workers", f"batches find no shared memory: {reason}; {fix}") from error
        fix = "if memory ran out, lower data.num_workers or give the container a larger /dev/shm"
        raise DataError("data.num_workers", f"a worker process died: {error}; {fix}") from error


def _ready_to_leave(thing: Thing) -> Thing:
    """As it is; in a worker, with its tensors where the main process can read them.

    Left to torch, that would happen in a thread that only prints what goes wrong, and nothing ever arrives.
    """
    if get_worker_info() is not None:
        try:
            _share(thing)
        except RuntimeError as error:
            raise RuntimeError(f"{_NOT_SHARED}: {error}") from error
    return thing


def _share(thing: object) -> None:
    if isinstance(thing, Tensor):
        thing.share_memory_()
    elif is_dataclass(thing):
        for field in fields(thing):
            _share(getattr(thing, field.name))
    elif isinstance(thing, list | tuple):
        for each in thing:
            _share(each)
