"""Repetitions of one measurement as one, with the mean of each figure. Knows nothing of what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from calotype.bench.references.entry import Entry
from calotype.spec.reference import Figure


def trials_as_one(entries: Iterable[Entry]) -> list[Entry]:
    """Entries that share `trial_of` as one, where the first stood; those that ended otherwise apart."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.trial_of or entry.id, entry.outcome), []).append(entry)
    return [_mean(group) if group[0].trial_of else group[0] for group in groups.values()]


def _mean(group: list[Entry]) -> Entry:
    figures = tuple(
        same[0].model_copy(update={"value": fmean(figure.value for figure in same)}) for same in _alike(group)
    )
    flags = tuple(flag for entry in group for flag in entry.flags)
    place = group[0].trial_of or group[0].id
    return replace(
        group[0], id=place, label="", figures=figures, flags=flags, trial_of=None, trials=len(group)
    )


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
