"""How many of those who could share an evaluation should: as few as do the work as fast, at least half.

Where one picture keeps a device busy already, two that share take twice as long, and the one that was about
to be done would wait for the other. There half of them go on alone, and the rest are done no later for it;
where a device has room for more, all share. What evaluations take decides, as far as it is known: nobody
waits for something to be found out. Knows nothing of engines or jobs, nor which half it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

MIN_SPEEDUP = 0.95
"""Rows a second, of what all would do together."""
_OFTEN_ENOUGH = 2
"""Evaluations until their time is known: the first of a size may be spent on recording it."""
_REMEMBERED = 8


class BatchPolicy:
    """Seconds of evaluations by their shape and rows."""

    def __init__(self) -> None:
        self._taken: dict[Hashable, dict[int, deque[float]]] = {}

    def learn(self, shape: Hashable, rows: int, seconds: float) -> None:
        """An evaluation of so many rows took so long."""
        by_rows = self._taken.setdefault(shape, {})
        by_rows.setdefault(rows, deque(maxlen=_REMEMBERED)).append(seconds)

    def rows(self, shape: Hashable, wanted: int, most: int) -> int:
        """How many rows to evaluate next if so many could use one and an evaluation has `most` of them."""
        rates = self._rates(shape)
        if most not in rates:
            return most
        least = -(-wanted // 2)
        as_fast = [rows for rows, rate in rates.items() if rate >= MIN_SPEEDUP * rates[most]]
        return min((rows for rows in as_fast if least <= rows <= most), default=most)

    def _rates(self, shape: Hashable) -> dict[int, float]:
        """Rows a second. The quickest of the last few counts: other work may have come between."""
        return {
            rows: rows / min(taken)
            for rows, taken in self._taken.get(shape, {}).items()
            if len(taken) >= _OFTEN_ENOUGH and min(taken) > 0
        }
