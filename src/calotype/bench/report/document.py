"""What a report is made of, the same for the page and for Markdown. Knows nothing of either."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element


@dataclass(frozen=True)
class Cell:
    text: str
    order: float | None = None
    """What it is sorted by; the text if it is not a number."""
    mark: str = ""
    """`bad` for what failed, `code` for what is typed."""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    still: bool = False
    """Whether the order of its rows is part of what it says: neither sorted nor filtered."""

    def holds_numbers(self, column: int) -> bool:
        """What else stands in such a column, a failure or a word, stands where its numbers do."""
        return any(row[column].order is not None for row in self.rows)


@dataclass(frozen=True)
class Figure:
    """A plot, the numbers in it, and the commands that gave them."""

    name: str
    """Of its file and its anchor."""
    title: str
    says: str
    """How to read it, and what its marks are."""
    plot: Element
    data: Table
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    caption: str
    source: str
    """As a data URI."""
    size: tuple[int, int]


@dataclass(frozen=True)
class Sheet:
    """Pictures that differ in one thing."""

    title: str
    says: str
    pictures: tuple[Picture, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """One number that a reader should take home, with what belongs beside it."""

    what: str
    value: str
    unit: str
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    says: str = ""
    cards: tuple[Card, ...] = ()
    figures: tuple[Figure, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.cards or self.figures or self.sheets or self.tables)


@dataclass(frozen=True)
class Report:
    title: str
    says: str
    sections: tuple[Section, ...] = field(default=())


def words(text: object) -> Cell:
    return Cell("" if text is None else str(text))


def number(value: float | None, form: str = "#.4g") -> Cell:
    return Cell("") if value is None else Cell(_plain(value, format(value, form)), float(value))


def _plain(value: float, text: str) -> str:
    """`1.234e+04` and `-0.0` are for programs."""
    if "e+" in text:
        return f"{value:,.0f}"
    return text.rstrip(".") if text.strip("-+0.%") else text.lstrip("-+")


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    note: str = "",
    keep: int = 1,
    alone: Sequence[str] = (),
) -> Table:
    """Without columns that say nothing; what is the same in every row is said once, in the caption.

    The first `keep` columns stay whatever is in them. Of a single row the columns `alone` go to the caption.
    """
    kept = [tuple(row) for row in rows]
    spoken = [{row[i].text for row in kept} for i in range(len(columns))]
    used = [i for i, found in enumerate(spoken) if i < keep or found - {""}]
    same = [i for i in used if i >= keep and len(spoken[i]) == 1 and (len(kept) > 1 or columns[i] in alone)]
    shared = [f"{columns[i]} {next(iter(spoken[i]))}" for i in same]
    shown = [i for i in used if i not in same]
    every = "All rows" if len(kept) > 1 else "It"
    return Table(
        caption=f"{caption} {every}: {', '.join(shared)}." if shared else caption,
        columns=tuple(columns[i] for i in shown),
        rows=tuple(tuple(row[i] for i in shown) for row in kept),
        note=note,
    )


def commands_of(commands: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(commands))
