"""Maps work over many things in parallel, with the results in order."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol, TypeVar

from calotype.core.errors import CalotypeError

_AT_A_TIME = 32
Thing = TypeVar("Thing")
Result = TypeVar("Result")


class ParallelMap(Protocol):
    """Like the built-in `map`."""

    def __call__(self, work: Callable[[Thing], Result], things: Iterable[Thing], /) -> Iterator[Result]: ...


@contextmanager
def process_pool(num_workers: int) -> Iterator[ParallelMap]:
    """Return a `map` over `num_workers` processes; with one worker, the built-in one."""
    if num_workers == 1:
        yield map
        return
    # Spawned, because a forked process with threads can deadlock. An executor rather than
    # `multiprocessing.Pool`, whose `terminate` can wait forever for a thread that writes to ended workers,
    # and which does not report a dead worker.
    pool = ProcessPoolExecutor(
        num_workers, multiprocessing.get_context("spawn"), initializer=_leave_interrupts_to_parent
    )

    def shared(work: Callable[[Thing], Result], things: Iterable[Thing], /) -> Iterator[Result]:
        return pool.map(work, things, chunksize=_AT_A_TIME)

    try:
        yield shared
    except BrokenProcessPool as error:
        raise CalotypeError(
            f"one of {num_workers} worker processes was killed, possibly out of memory; use fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
