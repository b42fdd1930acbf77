"""A record beside every reference with comparable settings, the nearest first. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calotype.bench.references.settings_diff import Differences, differences
from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.references.units import SPEEDS, STEPS, Measure, measures

_ALIKE = {"sd1": "sd1/sd2", "sd2": "sd1/sd2"}
"""Their UNets do the same work to a tenth of a per cent."""
_BOUNDS = "performance/floors/"


@dataclass(frozen=True)
class NearestReference:
    """A record and one reference. What is not comparable stands next to what is."""

    reference: Entry
    measure: Measure | None
    """None where one of the two failed."""
    ours: float | None
    theirs: float | None
    ours_gib: float | None
    theirs_gib: float | None
    differences: Differences

    @property
    def ratio(self) -> float | None:
        """How many times the reference's speed per GPU."""
        return self.ours / self.theirs if self.ours and self.theirs else None

    @property
    def quotable(self) -> bool:
        """Whether the ratio says what it seems to, read without its differences: a run, no bound that nobody
        ran, of pictures as large and, unless steps are counted, of as many steps."""
        apart = {difference.what for difference in self.differences.found}
        work = {"resolution"} if self.measure == STEPS else {"resolution", "steps"}
        bound = self.reference.id.startswith(_BOUNDS)
        return self.ratio is not None and not bound and not apart & work


@dataclass(frozen=True)
class Comparison:
    record: Entry
    besides: tuple[NearestReference, ...]
    """The nearest first."""


def compare(record: Entry, references: Iterable[Entry]) -> Comparison:
    found = [beside for reference in references for beside in _beside(record, reference)]
    return Comparison(record, tuple(sorted(found, key=_farness)))


def comparable(one: Entry, other: Entry) -> bool:
    """Whether the two did the same kind of work on models that do as much."""
    first, second = one.settings, other.settings
    if first.work != second.work or first.work not in ("training", "inference"):
        return False
    if first.model is None or second.model is None:
        return False
    return _ALIKE.get(first.model, first.model) == _ALIKE.get(second.model, second.model)


def _farness(beside: NearestReference) -> tuple[float, float]:
    """Of those that are as near, the fastest first: whoever quotes one quotes the strongest."""
    doubts = sum(flag.certainty == "doubtful" for flag in beside.reference.flags)
    return beside.differences.distance + doubts, beside.ratio or 0.0


def _beside(record: Entry, reference: Entry) -> list[NearestReference]:
    if not comparable(record, reference) or reference.outcome == "not_given":
        return []
    mine, other = measures(record), measures(reference)
    apart = differences(record.settings, reference.settings)
    shared = [name for name in SPEEDS if name in mine and name in other]
    memory = (mine.get("GiB"), other.get("GiB"))
    if shared:
        # Arithmetic rates come last: two sources may count work otherwise.
        name = shared[0]
        if name == STEPS and record.source == RECORDS:
            # Ours are the evaluations of one batch, on the device's clock.
            bare = record.settings.model_copy(update={"loop": ("unet",)})
            apart = differences(bare, reference.settings)
        return [NearestReference(reference, name, mine[name], other[name], *memory, apart)]
    if record.outcome == "ok" and reference.outcome == "ok":
        return []
    speed = next((name for name in SPEEDS if name in mine or name in other), None)
    ours, theirs = (mine.get(speed), other.get(speed)) if speed else (None, None)
    return [NearestReference(reference, speed, ours, theirs, *memory, apart)]
