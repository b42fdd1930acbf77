"""Chooses the batch size: the smallest with about the same throughput as the full batch, at least half of it.

If one image already saturates the device, a batch of two takes twice as long, and the image that was almost
done waits for the other. A batch of half the rows then finishes these sooner and the rest no later. If the
device has spare capacity, all rows share one evaluation. Measured times decide, as far as they are known:
the policy delays no job to measure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

MIN_SPEEDUP = 0.95
"""Smallest accepted throughput in rows per second, as a fraction of the full batch's."""
_MIN_SAMPLES = 2
"""Evaluations until a time counts as known: the first of a size may include a CUDA graph capture."""
_MAX_SAMPLES = 8


class BatchPolicy:
    """Records the times of evaluations by shape and rows, and chooses the rows of the next."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, dict[int, deque[float]]] = {}

    def learn(self, shape: Hashable, rows: int, seconds: float) -> None:
        """Record the time of an evaluation."""
        by_rows = self._seconds.setdefault(shape, {})
        by_rows.setdefault(rows, deque(maxlen=_MAX_SAMPLES)).append(seconds)

    def rows(self, shape: Hashable, wanted: int, most: int) -> int:
        """Return the rows to evaluate next, if `wanted` rows wait and the full batch has `most`."""
        rates = self._rates(shape)
        if most not in rates:
            return most
        least = -(-wanted // 2)
        fast_enough = [rows for rows, rate in rates.items() if rate >= MIN_SPEEDUP * rates[most]]
        return min((rows for rows in fast_enough if least <= rows <= most), default=most)

    def _rates(self, shape: Hashable) -> dict[int, float]:
        """Return rows per second by rows, from the fastest recent sample: other work may slow some down."""
        return {
            rows: rows / min(samples)
            for rows, samples in self._seconds.get(shape, {}).items()
            if len(samples) >= _MIN_SAMPLES and min(samples) > 0
        }
