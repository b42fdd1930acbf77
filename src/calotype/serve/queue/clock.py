"""What time it is. Knows nothing of who asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """The time of day, for people, and one that cannot jump, for everything else."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
