"""What others measured, as it ships with the package. Knows nothing of what it is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from statistics import fmean

from calotype.bench.references.entry import Entry
from calotype.spec.reference import Row, Source, Table


@cache
def sources() -> tuple[Source, ...]:
    """Every source, with its rows as they are written there."""
    found = sorted(file.name for file in files("calotype.references").iterdir())
    return tuple(
        Source.model_validate_json((files("calotype.references") / name).read_bytes())
        for name in found
        if name.endswith(".json")
    )


@cache
def entries() -> tuple[Entry, ...]:
    """Every row as it is reckoned with: over its table's settings, corrected where that is known."""
    return tuple(
        _entry(source.name, table, row)
        for source in sources()
        for table in source.tables
        for row in table.rows
    )


def distinct() -> tuple[Entry, ...]:
    """The same without rows that only repeat another, and with the mean of trials as one."""
    return tuple(_with_means(entry for entry in entries() if entry.repeats is None))


def by_id(name: str) -> Entry:
    return next(entry for entry in entries() if entry.id == name)


def _entry(source: str, table: Table, row: Row) -> Entry:
    settings, figures = row.settings.over(table.settings), row.figures
    if row.corrected:
        settings = row.corrected.settings.over(settings)
        figures = row.figures if row.corrected.figures is None else row.corrected.figures
    place = f"{source}/{table.name}/{row.row}"
    return Entry(
        id=f"{place}/{row.column}" if row.column else place,
        source=source,
        settings=settings,
        figures=figures,
        label=row.label or "",
        outcome=row.outcome,
        inferred=frozenset(table.inferred) | frozenset(row.inferred),
        flags=row.flags,
        repeats=row.repeats,
        trial_of=f"{source}/{table.name}" if table.trials else None,
    )


def _with_means(found: Iterable[Entry]) -> Iterable[Entry]:
    trials: dict[str, list[Entry]] = {}
    for entry in found:
        if entry.trial_of:
            trials.setdefault(entry.trial_of, []).append(entry)
        else:
            yield entry
    for place, group in trials.items():
        yield mean_of(place, group)


def mean_of(place: str, group: list[Entry]) -> Entry:
    """Repetitions of one measurement as one, each figure the mean of theirs."""
    means = zip(*(entry.figures for entry in group), strict=True)
    figures = tuple(
        same[0].model_copy(update={"value": fmean(figure.value for figure in same)}) for same in means
    )
    flags = tuple(flag for entry in group for flag in entry.flags)
    return replace(
        group[0], id=place, label="", figures=figures, flags=flags, trial_of=None, trials=len(group)
    )
