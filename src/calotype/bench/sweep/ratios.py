"""How many times faster one point is than another, and whether the spread lets anybody say so.

Rounds are compared one by one, since what drifts from round to round hits both sides alike. Knows nothing of
what the points are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.spec.records.measurement import Measurement
from calotype.spec.statistics import summarize


@dataclass(frozen=True)
class Ratio:
    """Seconds of another divided by seconds of one, for as many samples: above 1, the one is faster."""

    value: float
    low: float
    high: float
    """The spread: over rounds, or over single units where there is one round."""
    rounds: int
    repeated: bool = True
    """Whether both sides were measured more than once: else nothing is known of the spread."""

    @property
    def separated(self) -> bool:
        """Whether the spread leaves no doubt which of the two is faster."""
        return self.repeated and not self.low <= 1 <= self.high

    def __str__(self) -> str:
        """A question mark says that the spread is larger than the difference, or not known."""
        if not self.repeated:
            return f"{self.value:.2f}× (once) ?"
        doubt = "" if self.separated else " ?"
        return f"{self.value:.2f}× ({self.low:.2f}–{self.high:.2f}){doubt}"


def ratio(one: Sequence[Measurement], other: Sequence[Measurement]) -> Ratio | None:
    """How many times faster `one` is than `other`; each holds a point's rounds. None if either failed."""
    ours = {m.round: m.steady for m in one if m.steady}
    theirs = {m.round: m.steady for m in other if m.steady}
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return None
    more = _samples_each(one) / _samples_each(other)
    if len(both) == 1:
        mine, yours = ours[both[0]], theirs[both[0]]
        low, high = yours.p5 / mine.p95, yours.p95 / mine.p5
        repeated = min(mine.count, yours.count) > 1
        return Ratio(more * yours.median / mine.median, more * low, more * high, 1, repeated)
    each = [more * theirs[number].median / ours[number].median for number in both]
    return Ratio(summarize(each).median, min(each), max(each), len(both))


def _samples_each(rounds: Sequence[Measurement]) -> int:
    """Of a round that worked: one that died early does not say."""
    return next((m.samples_per_unit for m in rounds if m.steady and m.samples_per_unit), 1)


def by_point(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Rounds by the point's id, in order."""
    found: dict[str, list[Measurement]] = {}
    for one in measurements:
        found.setdefault(one.id, []).append(one)
    return {key: sorted(rounds, key=lambda m: m.round) for key, rounds in found.items()}
