"""Renders a report as Markdown: the same sections, with plots as separate files."""

from __future__ import annotations

import re

from calotype.bench.report.document import Cell, Figure, Report, Section, Sheet, Table

FIGURES = "figures"


def as_markdown(report: Report) -> str:
    parts = [f"# {plain(report.title)}", plain(report.says)]
    for section in report.sections:
        parts += _section(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: str) -> str:
    """Escape text for one line of Markdown: no tags, emphasis or links."""
    safe = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", safe)


def _section(section: Section) -> list[str]:
    parts = [f"## {plain(section.title)}", plain(section.says)]
    for card in section.cards:
        lines = "\n".join(f"- {plain(line)}" for line in card.beside)
        parts.append(f"**{plain(card.what)}: {plain(card.value)} {plain(card.unit)}**\n\n{lines}")
    for figure in section.figures:
        parts += _figure(figure)
    for sheet in section.sheets:
        parts += _sheet(sheet)
    for table in section.tables:
        parts += _table(table)
    return parts


def _figure(figure: Figure) -> list[str]:
    return [
        f"### {plain(figure.title)}",
        f"![{plain(figure.title)}]({FIGURES}/{figure.name}.svg)",
        plain(figure.says),
        *_table(figure.data),
        _commands(figure.commands),
    ]


def _sheet(sheet: Sheet) -> list[str]:
    captions = ", ".join(plain(picture.caption) for picture in sheet.pictures)
    return [
        f"### {plain(sheet.title)}",
        f"{plain(sheet.says)} The HTML page shows: {captions}.",
        _commands(sheet.commands),
    ]


def _table(table: Table) -> list[str]:
    lines = [
        "| " + " | ".join(map(plain, table.columns)) + " |",
        "|" + "|".join("--:" if table.holds_numbers(i) else "---" for i in range(len(table.columns))) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in table.rows),
    ]
    return [f"**{plain(table.caption)}**", "\n".join(lines), plain(table.note)]


def _cell(cell: Cell) -> str:
    if cell.mark == "code" and cell.text:
        return _code(cell.text).replace("|", "\\|")
    return f"**{plain(cell.text)}**" if cell.mark == "bad" and cell.text else plain(cell.text)


def _code(text: str) -> str:
    """Quote as code, fenced by more backticks than the text contains."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{' '.join(text.split())}{space}{fence}"


def _commands(commands: tuple[str, ...]) -> str:
    return "\n".join(f"- {_code(command)}" for command in commands)
