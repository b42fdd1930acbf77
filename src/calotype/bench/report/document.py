"""The parts of a report, shared by the HTML and the Markdown renderer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element


@dataclass(frozen=True)
class Cell:
    text: str
    order: float | None = None
    """Sort key; without one, the text sorts."""
    mark: str = ""
    """`bad` for failures, `code` for commands."""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    still: bool = False
    """Whether the order of rows is meaningful; such a table is neither sorted nor filtered."""

    def holds_numbers(self, column: int) -> bool:
        """Whether the column is numeric; its other cells, failures or words, align with the numbers."""
        return any(row[column].order is not None for row in self.rows)


@dataclass(frozen=True)
class Figure:
    """A plot, its numbers, and the commands that produced them."""

    name: str
    """Name of the file and of the anchor."""
    title: str
    says: str
    """How to read the plot and its marks."""
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
    """Images that differ in one setting."""

    title: str
    says: str
    pictures: tuple[Picture, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """One headline number with its context."""

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
    """Format without an exponent and without a negative zero."""
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
    """Build a table without empty columns; values equal in every row move to the caption.

    The first `keep` columns always stay. For a single row, the columns `alone` move to the caption.
    """
    cells = [tuple(row) for row in rows]
    texts = [{row[i].text for row in cells} for i in range(len(columns))]
    used = [i for i, values in enumerate(texts) if i < keep or values - {""}]
    same = [i for i in used if i >= keep and len(texts[i]) == 1 and (len(cells) > 1 or columns[i] in alone)]
    shared = [f"{columns[i]} {next(iter(texts[i]))}" for i in same]
    shown = [i for i in used if i not in same]
    scope = "All rows" if len(cells) > 1 else "The row"
    return Table(
        caption=f"{caption} {scope}: {', '.join(shared)}." if shared else caption,
        columns=tuple(columns[i] for i in shown),
        rows=tuple(tuple(row[i] for i in shown) for row in cells),
        note=note,
    )


def commands_of(commands: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(commands))
