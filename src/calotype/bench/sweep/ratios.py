"""Computes the speedup between two points, and whether the spread supports it.

Rounds are compared pairwise, because drift between rounds affects both sides equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.spec.records.measurement import Measurement
from calotype.spec.statistics import summarize


@dataclass(frozen=True)
class Ratio:
    """Time of the other point divided by time of the one, per sample: above 1, the one is faster."""

    value: float
    low: float
    high: float
    """The spread over rounds, or over single units for one round."""
    rounds: int
    repeated: bool = True
    """Whether both sides were measured more than once; otherwise the spread is unknown."""

    @property
    def separated(self) -> bool:
        """Whether the spread excludes that the other point is as fast."""
        return self.repeated and not self.low <= 1 <= self.high

    def __str__(self) -> str:
        """A question mark means that the spread is unknown or larger than the difference."""
        if not self.repeated:
            return f"{self.value:.2f}× (once) ?"
        doubt = "" if self.separated else " ?"
        return f"{self.value:.2f}× ({self.low:.2f}–{self.high:.2f}){doubt}"


def ratio(one: Sequence[Measurement], other: Sequence[Measurement]) -> Ratio | None:
    """Return the speedup of `one` over `other`, each a point's rounds; None if either failed."""
    ours = {m.round: m.steady for m in one if m.steady}
    theirs = {m.round: m.steady for m in other if m.steady}
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return None
    more = _samples_each(one) / _samples_each(other)
    if len(both) == 1:
        first, second = ours[both[0]], theirs[both[0]]
        low, high = second.p5 / first.p95, second.p95 / first.p5
        repeated = min(first.count, second.count) > 1
        return Ratio(more * second.median / first.median, more * low, more * high, 1, repeated)
    each = [more * theirs[number].median / ours[number].median for number in both]
    return Ratio(summarize(each).median, min(each), max(each), len(both))


def _samples_each(rounds: Sequence[Measurement]) -> int:
    """Return the samples per unit of a successful round; an early failure does not record it."""
    return next((m.samples_per_unit for m in rounds if m.steady and m.samples_per_unit), 1)


def by_point(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Group the rounds by the point's id, in order."""
    groups: dict[str, list[Measurement]] = {}
    for one in measurements:
        groups.setdefault(one.id, []).append(one)
    return {key: sorted(rounds, key=lambda m: m.round) for key, rounds in groups.items()}
