"""Work in a child process that is forked, so that it may die of anything and starts at once.

A fork beside threads may find a lock taken that nobody will give back. So the system ends a child that is not
done in time (-SIGALRM), and nobody waits for one any longer than that.
"""

from __future__ import annotations

import os
import selectors
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FAILED = 70
PATIENCE_S = 120


@dataclass(frozen=True)
class Child:
    pid: int
    heard: int
    """A pipe's end that gets a byte for each `tell`, and ends when the child does."""

    def hear(self) -> bytes:
        return read_in_time(self.heard, 1)


def fork(work: Callable[[], object]) -> int:
    """The pid of a child that does `work` and ends: 0 when it returned, FAILED when it raised."""
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; torch's are idle here and the child uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = FAILED
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def outcome(work: Callable[[], object]) -> int:
    """The exit status of a child that did `work`; negative for the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])


@contextmanager
def living(work: Callable[[Callable[[], None]], object]) -> Iterator[Child]:
    """A child that is given `tell`, tells, and is killed at the end."""
    reading, writing = os.pipe()
    pid = fork(lambda: work(lambda: _tell(writing)))
    os.close(writing)
    try:
        yield Child(pid, reading)
    finally:
        kill(pid)
        os.close(reading)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def forever() -> None:
    """Until a signal ends the process."""
    while True:
        signal.pause()


def read_in_time(pipe: int, size: int) -> bytes:
    """What somebody writes into a pipe, or nothing if nobody can any more."""
    until_readable(pipe)
    return os.read(pipe, size)


def until_readable(pipe: int) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        assert waiting.select(PATIENCE_S), f"the child said nothing for {PATIENCE_S} s"


def _tell(pipe: int) -> None:
    os.write(pipe, b".")
