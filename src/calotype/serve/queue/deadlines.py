"""Deadlines of unfinished jobs, by a monotonic clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

_MAX_STALE = 100


class Deadlines:
    """Due times on the clock `monotonic`, by job."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[str, float] = {}
        self._soonest: list[tuple[float, str]] = []

    def add(self, job_id: str, seconds: float) -> None:
        """Add a deadline; an earlier one of the same job stays."""
        if job_id in self._due:
            return
        self._due[job_id] = self._monotonic() + seconds
        heapq.heappush(self._soonest, (self._due[job_id], job_id))

    def drop(self, job_id: str) -> None:
        self._due.pop(job_id, None)
        # Most jobs end long before their deadline; their stale entries must not accumulate.
        if len(self._soonest) > 2 * len(self._due) + _MAX_STALE:
            self._soonest = sorted((due, job_id) for job_id, due in self._due.items())

    def passed(self) -> list[str]:
        """Jobs whose deadline has passed, until they are dropped."""
        now = self._monotonic()
        return [job_id for job_id, due in self._due.items() if due <= now]

    def seconds_left(self) -> float | None:
        """Seconds until the next deadline; None if there is none."""
        while self._soonest and self._due.get(self._soonest[0][1]) != self._soonest[0][0]:
            heapq.heappop(self._soonest)
        return max(0.0, self._soonest[0][0] - self._monotonic()) if self._soonest else None


def left_after_restart(created_at: float, deadline_s: float, now: float) -> float:
    """A job's remaining time by the wall clock, which may have jumped: at most what it was given."""
    return min(deadline_s, max(0.0, created_at + deadline_s - now))
