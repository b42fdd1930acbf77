"""`calotype report`: measurements as a page people want to read, and as Markdown."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORDS…", help="Files of records, JSON Lines or JSON, or folders of runs."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that the report goes to.")],
    title: Annotated[str | None, typer.Option(help="What it is headed by.")] = None,
) -> None:
    """Write one HTML page that needs no network, and Markdown with the same content.

    Plots, tables to sort and filter, references and conclusions come from whatever the records hold. Failures
    are shown as such; lines that cannot be read are listed at the end.
    """
    from calotype.bench.report.build import compose
    from calotype.bench.report.load import gather
    from calotype.bench.report.write import MARKDOWN, PAGE, write

    material = gather(records)
    for fault in material.faults:
        typer.echo(str(fault), err=True)
    write(compose(material, title), out)
    typer.echo(f"{out / PAGE}\n{out / MARKDOWN}")
