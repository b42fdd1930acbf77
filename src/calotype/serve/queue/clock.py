"""The clocks of a queue, replaceable in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """The wall clock, for people, and a monotonic clock, for everything else."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
