"""Compares a record with every reference of comparable settings, the most similar first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calotype.bench.references.settings_diff import Differences, differences
from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.references.units import SPEEDS, STEPS, Measure, measures

_EQUIVALENT = {"sd1": "sd1/sd2", "sd2": "sd1/sd2"}
"""Models whose UNets do the same work within a tenth of a percent."""
_BOUNDS = "performance/floors/"


@dataclass(frozen=True)
class NearestReference:
    """A record and one reference, with the settings that differ."""

    reference: Entry
    measure: Measure | None
    """None if either failed and neither has a speed."""
    ours: float | None
    theirs: float | None
    ours_gib: float | None
    theirs_gib: float | None
    differences: Differences

    @property
    def ratio(self) -> float | None:
        """Our speed per GPU divided by the reference's."""
        return self.ours / self.theirs if self.ours and self.theirs else None

    @property
    def quotable(self) -> bool:
        """Whether the ratio can be quoted without listing the differences.

        The reference must be a run, not a theoretical bound, with the same resolution and, unless the measure
        counts steps, the same number of steps.
        """
        differing = {difference.what for difference in self.differences.found}
        work = {"resolution"} if self.measure == STEPS else {"resolution", "steps"}
        bound = self.reference.id.startswith(_BOUNDS)
        return self.ratio is not None and not bound and not differing & work


@dataclass(frozen=True)
class Comparison:
    record: Entry
    besides: tuple[NearestReference, ...]
    """The nearest first."""


def compare(record: Entry, references: Iterable[Entry]) -> Comparison:
    nearest = [beside for reference in references for beside in _compare_one(record, reference)]
    return Comparison(record, tuple(sorted(nearest, key=_distance)))


def comparable(one: Entry, other: Entry) -> bool:
    """Whether two entries did the same kind of work on models of equal cost."""
    first, second = one.settings, other.settings
    if first.work != second.work or first.work not in ("training", "inference"):
        return False
    if first.model is None or second.model is None:
        return False
    return _EQUIVALENT.get(first.model, first.model) == _EQUIVALENT.get(second.model, second.model)


def _distance(beside: NearestReference) -> tuple[float, float]:
    """Sort key: distance, then the fastest reference first, so that a quoted reference is the strongest."""
    doubts = sum(flag.certainty == "doubtful" for flag in beside.reference.flags)
    return beside.differences.distance + doubts, beside.ratio or 0.0


def _compare_one(record: Entry, reference: Entry) -> list[NearestReference]:
    if not comparable(record, reference) or reference.outcome == "not_given":
        return []
    mine, other = measures(record), measures(reference)
    differing = differences(record.settings, reference.settings)
    shared = [name for name in SPEEDS if name in mine and name in other]
    memory = (mine.get("GiB"), other.get("GiB"))
    if shared:
        # Arithmetic rates come last because sources count work differently.
        name = shared[0]
        if name == STEPS and record.source == RECORDS:
            # Our step times are the evaluations of one batch, timed on the device.
            bare = record.settings.model_copy(update={"loop": ("unet",)})
            differing = differences(bare, reference.settings)
        return [NearestReference(reference, name, mine[name], other[name], *memory, differing)]
    if record.outcome == "ok" and reference.outcome == "ok":
        return []
    speed = next((name for name in SPEEDS if name in mine or name in other), None)
    ours, theirs = (mine.get(speed), other.get(speed)) if speed else (None, None)
    return [NearestReference(reference, speed, ours, theirs, *memory, differing)]
