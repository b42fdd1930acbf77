"""How many rows an evaluation may have: as was said, as memory is expected to hold, as it did hold.

Knows nothing of engines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_log = logging.getLogger(__name__)

FINE_UP_TO = 16
COARSE = 4
FIRST_WAIT_S = 600.0
"""A try that fails costs an evaluation and what others kept to be faster."""


def bucket(rows: int) -> int:
    """The number of rows to evaluate for so many: 1, then even numbers up to 16, then multiples of four.

    Few enough for their recordings to be kept, and near enough together: a row for nobody costs what others
    do. Pictures with guidance, two rows each, meet their number exactly up to eight of them.
    """
    step = 1 if rows == 1 else 2 if rows <= FINE_UP_TO else COARSE
    return -(-rows // step) * step


@dataclass(frozen=True)
class _LearnedLimit:
    rows: int
    until_s: float
    wait_s: float


class RowLimits:
    """Rows per evaluation, for each model and shape."""

    def __init__(self, most_rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_rows, self._clock = most_rows, clock
        self._learnt: dict[Hashable, _LearnedLimit] = {}

    def of(self, shape: Hashable, expected: int | None = None) -> int:
        """At least one, whatever was learnt: a single picture is tried before it is refused."""
        learnt = self._learnt.get(shape)
        held = learnt.rows if learnt and self._clock() < learnt.until_s else None
        return max(1, min(limit for limit in (self._most_rows, expected, held) if limit is not None))

    def learn(self, shape: Hashable, failed_rows: int, next_rows: int) -> None:
        """So many rows did not fit; at most `next_rows` are tried for a while, and longer each time."""
        now, before = self._clock(), self._learnt.get(shape)
        rows, wait_s = next_rows, FIRST_WAIT_S
        if before is not None and now < before.until_s:
            rows, wait_s = min(next_rows, before.rows), before.wait_s
        elif before is not None:
            wait_s = 2 * before.wait_s
        # Not for ever: whoever else had the memory may have given it back.
        self._learnt[shape] = _LearnedLimit(rows, now + wait_s, wait_s)
        told = (failed_rows, shape, rows, wait_s / 60)
        _log.warning("out of memory: %d rows of %s did not fit; at most %d for %.0f minutes", *told)
