"""`calotype report`: write measurements as one HTML page and as Markdown."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORDS…", help="Record files (JSON Lines or JSON) or folders of runs."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of the report.")],
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
) -> None:
    """Write a report of benchmark records: one self-contained HTML page, and Markdown with the same content.

    It holds plots, sortable and filterable tables, references and conclusions, as far as the records go.
    Failures are shown as such; unreadable lines are listed at the end.
    """
    from calotype.bench.report.build import compose
    from calotype.bench.report.load import gather
    from calotype.bench.report.write import MARKDOWN, PAGE, write

    material = gather(records)
    for fault in material.faults:
        typer.echo(str(fault), err=True)
    write(compose(material, title), out)
    typer.echo(f"{out / PAGE}\n{out / MARKDOWN}")
