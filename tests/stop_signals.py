"""Telling this process to stop. Knows nothing of what it does."""

from __future__ import annotations

import os
import signal
import time

from calotype.train.checkpoint import StopSignal

_LONGEST_S = 60


def tell_to_stop(number: signal.Signals) -> None:
    """Returns when the signal is noticed, which another thread than this one may have to do."""
    os.kill(os.getpid(), number)
    stop = getattr(signal.getsignal(number), "__self__", None)
    assert isinstance(stop, StopSignal), f"nobody waits for {number.name}"
    until = time.monotonic() + _LONGEST_S
    while not stop.requested:
        assert time.monotonic() < until, f"{number.name} was not noticed in {_LONGEST_S} s"
        time.sleep(0.001)
