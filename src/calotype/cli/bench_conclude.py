"""`calotype bench conclude`: derive conclusions from references and records, with the arithmetic."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from calotype.bench.conclusions.run import Conclusions
    from calotype.core.errors import Problem


def command(
    records: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RECORD…]", help="Record files (JSON Lines or JSON) or folders of runs."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="Only conclusions about this source; `records` for your own; repeatable."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only conclusions of this topic; repeatable.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of text.")] = False,
    as_json: AsJson = False,
) -> None:
    """Derive ratios, scaling, fits and gains from references and records, and check published conclusions."""
    from calotype.bench.conclusions import report
    from calotype.bench.conclusions.run import conclude, only
    from calotype.bench.conclusions.types import TOPICS
    from calotype.bench.references.from_records import read_records
    from calotype.bench.references.load import sources
    from calotype.bench.references.types import RECORDS
    from calotype.cli.output import print_json
    from calotype.core.errors import RequestError

    problems = _unknown("--source", source or [], [RECORDS, *(known.name for known in sources())])
    problems += _unknown("--topic", topic or [], list(TOPICS))
    if problems:
        raise RequestError(problems)
    read = read_records(records or [])
    for problem in read.skipped:
        typer.echo(f"skipped {problem}", err=True)
    found = only(conclude(read.entries), source or [], topic or [])
    if as_json:
        print_json(found)
    elif markdown:
        typer.echo(report.as_markdown(found))
    else:
        _show(found)


def _unknown(option: str, given: list[str], known: list[str]) -> "list[Problem]":
    from calotype.core.errors import Problem, did_you_mean

    wrong = [name for name in given if name not in known]
    return [Problem(option, f"there is no {name!r}; {did_you_mean(name, known)}", name) for name in wrong]


_SHORT = ("stated", "derived", "follows")


def _show(conclusions: "Conclusions") -> None:
    """Print paragraphs, readable at any width; --markdown has the tables and the sources of numbers."""
    from rich.padding import Padding
    from rich.text import Text

    from calotype.bench.conclusions import report
    from calotype.cli.output import console

    out = console()
    for heading, rows in report.tables(conclusions).items():
        out.print(Text(f"\n{heading}", style="bold"))
        for row in rows:
            out.print(
                Padding(Text.assemble(row["conclusion"], (f"  [{row['source']}]", "dim")), (0, 0, 0, 2))
            )
            short = ", ".join(f"{column} {row[column]}" for column in _SHORT if row.get(column))
            for text in filter(None, (short, row["arithmetic"], row.get("notes"), row.get("flags"))):
                out.print(Padding(Text(text), (0, 0, 0, 6)))
