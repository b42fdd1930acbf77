"""Limits the rows of an evaluation: by configuration, by expected memory, and by out-of-memory errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_log = logging.getLogger(__name__)

FINE_UP_TO = 16
COARSE = 4
FIRST_WAIT_S = 600.0
"""Long, because a failed attempt costs an evaluation and the caches of all engines."""


def bucket(rows: int) -> int:
    """Round up to a batch size: 1, then even numbers up to 16, then multiples of four.

    The sizes are few, so that all their CUDA graphs stay cached, and close together, because a padding row
    costs as much as any other. Up to eight images with guidance, two rows each, need no padding.
    """
    step = 1 if rows == 1 else 2 if rows <= FINE_UP_TO else COARSE
    return -(-rows // step) * step


@dataclass(frozen=True)
class _LearnedLimit:
    rows: int
    until_s: float
    wait_s: float


class RowLimits:
    """Row limits for each model and shape."""

    def __init__(self, most_rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_rows, self._clock = most_rows, clock
        self._learned: dict[Hashable, _LearnedLimit] = {}

    def of(self, shape: Hashable, expected: int | None = None) -> int:
        """Return the limit; at least one, so that a single image is tried before it is rejected."""
        learned = self._learned.get(shape)
        learned_rows = learned.rows if learned and self._clock() < learned.until_s else None
        return max(1, min(limit for limit in (self._most_rows, expected, learned_rows) if limit is not None))

    def learn(self, shape: Hashable, failed_rows: int, next_rows: int) -> None:
        """Limit the rows to `next_rows` after `failed_rows` did not fit; each time for longer."""
        now, previous = self._clock(), self._learned.get(shape)
        rows, wait_s = next_rows, FIRST_WAIT_S
        if previous is not None and now < previous.until_s:
            rows, wait_s = min(next_rows, previous.rows), previous.wait_s
        elif previous is not None:
            wait_s = 2 * previous.wait_s
        # Not permanent: another process may have released its memory.
        self._learned[shape] = _LearnedLimit(rows, now + wait_s, wait_s)
        arguments = (failed_rows, shape, rows, wait_s / 60)
        _log.warning("out of memory: %d rows of %s did not fit; at most %d for %.0f minutes", *arguments)
