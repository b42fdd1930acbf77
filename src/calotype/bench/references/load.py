"""What others measured, as it ships with the package. Knows nothing of what it is compared with."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from calotype.bench.references.aggregate import aggregate_trials
from calotype.bench.references.types import Entry
from calotype.spec.published_results import Row, Source, Table


@cache
def sources() -> tuple[Source, ...]:
    """Every source, with its rows as they are written there."""
    found = sorted(file.name for file in files("calotype.resources.references").iterdir())
    return tuple(
        Source.model_validate_json((files("calotype.resources.references") / name).read_bytes())
        for name in found
        if name.endswith(".json")
    )


@cache
def entries() -> tuple[Entry, ...]:
    """Every row as it is reckoned with: over its table's settings, corrected where that is known."""
    return tuple(
        entry for source in sources() for table in source.tables for entry in entries_in(source, table)
    )


def entries_in(source: Source, table: Table) -> list[Entry]:
    """Of one table, in its order."""
    return [_entry(source.name, table, row) for row in table.rows]


def distinct() -> tuple[Entry, ...]:
    """The same without rows that only repeat another, and with the mean of trials as one."""
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
