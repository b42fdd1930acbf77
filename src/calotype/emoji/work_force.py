"""Work on many things at once, with results in the order of the things. Knows nothing of the work."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

_AT_A_TIME = 32
Thing = TypeVar("Thing")
Result = TypeVar("Result")


class Map(Protocol):
    """Like the built-in `map`."""

    def __call__(self, work: Callable[[Thing], Result], things: Iterable[Thing], /) -> Iterator[Result]: ...


@contextmanager
def working(num_workers: int) -> Iterator[Map]:
    """A `map` that so many processes share; with one worker, the built-in one."""
    if num_workers == 1:
        yield map
        return
    # Started afresh, because a copy of a process that has threads can hang.
    pool = multiprocessing.get_context("spawn").Pool(num_workers, initializer=_leave_interrupts_to_parent)

    def shared(work: Callable[[Thing], Result], things: Iterable[Thing], /) -> Iterator[Result]:
        return pool.imap(work, things, chunksize=_AT_A_TIME)

    try:
        yield shared
    finally:
        pool.terminate()
        pool.join()


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
