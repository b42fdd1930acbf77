"""Writes a report's files: the HTML page, the Markdown, and the plots that the Markdown shows."""

from __future__ import annotations

from pathlib import Path

from calotype.bench.report.document import Report
from calotype.bench.report.render_html import page, standalone_svg
from calotype.bench.report.render_markdown import FIGURES, as_markdown
from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write

PAGE, MARKDOWN = "report.html", "report.md"


def write(report: Report, folder: Path) -> list[Path]:
    """Write every file atomically, replacing files of the same name."""
    texts = {PAGE: page(report), MARKDOWN: as_markdown(report)}
    for section in report.sections:
        for figure in section.figures:
            texts[f"{FIGURES}/{figure.name}.svg"] = standalone_svg(figure.plot)
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError([Problem("--out", f"{folder} is not a writable folder: {error}")]) from None
    for name, text in texts.items():
        with atomic_write(folder / name) as out:
            out.write(text.encode())
    return [folder / name for name in texts]
