"""Computes with time intervals that may overlap: coverage, gaps, and the share of each name.

All times are in the same unit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals to disjoint ones, in order."""
    merged: list[Interval] = []
    for one in sorted(intervals):
        if merged and one.start <= merged[-1].end:
            merged[-1] = Interval(merged[-1].start, max(merged[-1].end, one.end))
        else:
            merged.append(Interval(*one))
    return merged


def gaps(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """Return the parts of the window that no interval covers."""
    free, reached = [], window.start
    for one in union(intervals):
        if reached < one.start:
            free.append(Interval(reached, min(one.start, window.end)))
        reached = max(reached, one.end)
        if reached >= window.end:
            return [gap for gap in free if gap.length > 0]
    return [gap for gap in (*free, Interval(reached, window.end)) if gap.length > 0]


def clipped(one: Interval, window: Interval) -> Interval | None:
    """Clip an interval to a window; None if they are disjoint."""
    start, end = max(one.start, window.start), min(one.end, window.end)
    return Interval(start, end) if start < end else None


def common(some: Iterable[Interval], others: Iterable[Interval]) -> float:
    """Return the length of the overlap."""
    pairs = _meeting(union(some), union(others))
    return sum(min(one.end, other.end) - max(one.start, other.start) for one, other in pairs)


def _meeting(some: Sequence[Interval], others: Sequence[Interval]) -> Iterable[tuple[Interval, Interval]]:
    first = 0
    for one in some:
        while first < len(others) and others[first].end <= one.start:
            first += 1
        index = first
        while index < len(others) and others[index].start < one.end:
            yield one, others[index]
            index += 1


def shared_out(events: Sequence[tuple[str, Interval]]) -> dict[str, float]:
    """Return each name's part of the covered time; concurrent events share their time evenly.

    The parts therefore add up to the covered time.
    """
    lasting = [(index, one) for index, (_, one) in enumerate(events) if one.length > 0]
    edges = sorted(
        [(one.start, True, index) for index, one in lasting]
        + [(one.end, False, index) for index, one in lasting]
    )
    parts: dict[str, float] = defaultdict(float)
    running: set[int] = set()
    reached = 0.0
    for time, begins, index in edges:
        if running and time > reached:
            for number in running:
                parts[events[number][0]] += (time - reached) / len(running)
        reached = time
        if begins:
            running.add(index)
        else:
            running.discard(index)
    return parts
