"""How many rows an evaluation may have: as was said, as memory is expected to hold, as it did hold.

Knows nothing of engines.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable

_log = logging.getLogger(__name__)

FINE_UP_TO = 16
COARSE = 4


def bucket(rows: int) -> int:
    """The number of rows to evaluate for so many: 1, then even numbers up to 16, then multiples of four.

    Few enough for their recordings to be kept, and near enough together: a row for nobody costs what others
    do. Pictures with guidance, two rows each, meet their number exactly up to eight of them.
    """
    step = 1 if rows == 1 else 2 if rows <= FINE_UP_TO else COARSE
    return -(-rows // step) * step


class RowLimits:
    """Rows per evaluation, for each model and shape."""

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._learnt: dict[Hashable, int] = {}

    def of(self, shape: Hashable, expected: int | None = None) -> int:
        """At least one, whatever was learnt: a single picture is tried before it is refused."""
        known = (self._most_rows, expected, self._learnt.get(shape))
        return max(1, min(limit for limit in known if limit is not None))

    def learn(self, shape: Hashable, failed_rows: int, next_rows: int) -> None:
        """So many rows did not fit; from now on at most `next_rows` are tried."""
        self._learnt[shape] = min(next_rows, self._learnt.get(shape, next_rows))
        _log.warning(
            "out of memory: %d rows of %s did not fit; from now on at most %d", failed_rows, shape, next_rows
        )
