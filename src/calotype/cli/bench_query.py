"""`calotype bench query`: run SQL over stored measurements."""

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calotype.bench.records.query import Answer


def query(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SELECT...", help="SQL query over the tables `measurements` and `samples`."),
    ] = None,
    places: Annotated[
        list[Path] | None,
        typer.Option(
            "--records",
            "-r",
            help="Folder (searched recursively) or record file; repeatable. Default: current folder.",
        ),
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="List the columns of the tables and exit.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an SQL query over stored measurements.

    Access is read-only and limited to the records. Lines that are not measurements are reported and skipped.
    """
    from calotype.core.errors import Problem, RequestError

    if columns:
        _show_columns(as_json)
        return
    if sql is None:
        raise RequestError([Problem("query", "is missing; give a SELECT statement, or see --columns")])
    if as_csv and as_json:
        raise RequestError([Problem("--csv", "and --json exclude each other; choose one")])
    from calotype.bench.records.query import ask
    from calotype.bench.report.load import found_in

    searched = places or [Path()]
    reading = found_in(searched)
    for fault in reading.faults:
        typer.echo(str(fault), err=True)
    if not reading.stored:
        typer.echo(f"no measurement in {', '.join(map(str, searched))}", err=True)
    answer = ask(sql, reading.stored)
    if as_json:
        _print_json(answer)
    elif as_csv:
        _print_csv(answer)
    else:
        _print_table(answer)


def _show_columns(as_json: bool) -> None:
    from calotype.bench.records.columns import COLUMNS, SAMPLE_COLUMNS
    from calotype.cli.output import print_json

    tables = {
        "measurements": [(column.name, column.type, column.meaning) for column in COLUMNS],
        "samples": [(name, kind, meaning) for name, (kind, meaning) in SAMPLE_COLUMNS.items()],
    }
    if as_json:
        print_json(
            {
                table: [dict(zip(("name", "type", "meaning"), row, strict=True)) for row in rows]
                for table, rows in tables.items()
            }
        )
        return
    for table, rows in tables.items():
        typer.echo(table)
        for name, kind, meaning in rows:
            typer.echo(f"  {name:<20} {kind:<10} {meaning}")


def _print_json(answer: "Answer") -> None:
    from calotype.cli.output import print_json

    names = _distinct(answer.columns)
    print_json([dict(zip(names, map(_plain, row), strict=True)) for row in answer.rows])


def _distinct(columns: "Sequence[str]") -> list[str]:
    """Unique column names; the second `point` of a join becomes `point_1`."""
    names: list[str] = []
    for column in columns:
        others = (f"{column}_{number}" for number in range(1, len(columns)))
        names.append(next(name for name in (column, *others) if name not in names))
    return names


def _print_csv(answer: "Answer") -> None:
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([["" if value is None else value for value in row] for row in answer.rows])


def _print_table(answer: "Answer") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from calotype.cli.output import console

    table = Table(box=SIMPLE_HEAD, padding=0)
    for name in answer.columns:
        table.add_column(name, overflow="fold")
    for row in answer.rows:
        table.add_row(*(_cell(value) for value in row))
    console().print(table)


def _plain(value: object) -> object:
    """A JSON value; DuckDB also returns dates, decimals and infinities, which JSON lacks."""
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)
