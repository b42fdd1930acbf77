"""Keeps signals that are meant for the main process from ending its workers. Knows nothing of their work.

A scheduler that wants the machine back, or Ctrl-C, signals every process of a run, and the main one may still
have to save. So a worker only heeds SIGTERM from its parent, which is how the parent gets rid of it; and it
notices by itself when the parent is gone. If it heeded none at all, the parent would wait for it for ever.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

_FOR_THE_MAIN_PROCESS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_back() -> Iterator[None]:
    """Processes started within are born with the signals blocked, so that no moment is left open."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_MAIN_PROCESS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def heed_parent_only(_: int) -> None:
    """Called in each worker as it starts."""
    Thread(target=_wait_for_parent, args=(os.getppid(),), name="signals", daemon=True).start()


def _wait_for_parent(parent: int) -> None:
    while True:
        if signal.sigwaitinfo([signal.SIGTERM]).si_pid == parent:
            os._exit(0)
