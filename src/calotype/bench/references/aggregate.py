"""Combines repeated trials of a measurement into one entry with the mean or median of each figure.

Sources that repeat publish means; our own reports use the median of rounds.
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
    """Combine entries with the same `trial_of` and outcome into one, at the position of the first."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.trial_of or entry.id, entry.outcome), []).append(entry)
    return [_combine(group, middle) if group[0].trial_of else group[0] for group in groups.values()]


def _combine(group: list[Entry], middle: MedianTrial) -> Entry:
    figures = tuple(
        same[0].model_copy(update={"value": middle([figure.value for figure in same])})
        for same in _by_kind(group)
    )
    flags = tuple(flag for entry in group for flag in entry.flags)
    entry_id = group[0].trial_of or group[0].id
    combined = replace(group[0], id=entry_id, label="", figures=figures, flags=flags, trial_of=None)
    return combined if len(group) == 1 else replace(combined, trials=len(group), swing=_swing(group))


def _swing(group: list[Entry]) -> float:
    values = [figure.value for figure in next(iter(_by_kind(group)), [])]
    middle = fmean(values) if values else 0.0
    return (max(values) - min(values)) / 2 / middle if middle else 0.0


def _by_kind(group: list[Entry]) -> list[list[Figure]]:
    """Group figures by kind; a trial may lack one that others have."""
    groups: dict[tuple[object, ...], list[Figure]] = {}
    for entry in group:
        seen: Counter[object] = Counter()
        for figure in entry.figures:
            kind = (figure.what, figure.unit, figure.of)
            groups.setdefault((kind, seen[kind]), []).append(figure)
            seen[kind] += 1
    return list(groups.values())
