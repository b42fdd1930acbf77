"""Repetitions of one measurement as one, with the mean or median of each figure. Knows nothing of what was
measured.

Sources that repeat give means; rounds of ours are told by their median wherever else they are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean

from calotype.bench.references.types import Entry
from calotype.spec.published_results import Figure

MedianTrial = Callable[[Iterable[float]], float]


def aggregate_trials(entries: Iterable[Entry], middle: MedianTrial = fmean) -> list[Entry]:
    """Entries that share `trial_of` as one, where the first stood; those that ended otherwise apart."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.trial_of or entry.id, entry.outcome), []).append(entry)
    return [_as_one(group, middle) if group[0].trial_of else group[0] for group in groups.values()]


def _as_one(group: list[Entry], middle: MedianTrial) -> Entry:
    figures = tuple(
        same[0].model_copy(update={"value": middle([figure.value for figure in same])})
        for same in _alike(group)
    )
    flags = tuple(flag for entry in group for flag in entry.flags)
    place = group[0].trial_of or group[0].id
    one = replace(group[0], id=place, label="", figures=figures, flags=flags, trial_of=None)
    return one if len(group) == 1 else replace(one, trials=len(group), swing=_swing(group))


def _swing(group: list[Entry]) -> float:
    values = [figure.value for figure in next(iter(_alike(group)), [])]
    middle = fmean(values) if values else 0.0
    return (max(values) - min(values)) / 2 / middle if middle else 0.0


def _alike(group: list[Entry]) -> list[list[Figure]]:
    """Figures of one kind; a trial may lack one that others have."""
    found: dict[tuple[object, ...], list[Figure]] = {}
    for entry in group:
        seen: Counter[object] = Counter()
        for figure in entry.figures:
            kind = (figure.what, figure.unit, figure.of)
            found.setdefault((kind, seen[kind]), []).append(figure)
            seen[kind] += 1
    return list(found.values())
