"""Loads the published measurements that ship with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from calotype.bench.references.aggregate import aggregate_trials
from calotype.bench.references.types import Entry
from calotype.spec.published_results import Row, Source, Table


@cache
def sources() -> tuple[Source, ...]:
    """Return every source, with its rows as published."""
    names = sorted(file.name for file in files("calotype.resources.references").iterdir())
    return tuple(
        Source.model_validate_json((files("calotype.resources.references") / name).read_bytes())
        for name in names
        if name.endswith(".json")
    )


@cache
def entries() -> tuple[Entry, ...]:
    """Return every row as used for comparison: with its table's settings and known corrections."""
    return tuple(
        entry for source in sources() for table in source.tables for entry in entries_in(source, table)
    )


def entries_in(source: Source, table: Table) -> list[Entry]:
    """Return the entries of one table, in order."""
    return [_entry(source.name, table, row) for row in table.rows]


def distinct() -> tuple[Entry, ...]:
    """Return the entries without repeated rows, with trials combined into their mean."""
    return tuple(aggregate_trials(entry for entry in entries() if entry.repeats is None))


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
