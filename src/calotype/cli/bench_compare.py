"""`calotype bench compare`: compare records with published references."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from calotype.bench.references.nearest import Comparison

AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of text.")]
Records = Annotated[
    list[Path],
    typer.Argument(metavar="RECORD…", help="Record files (JSON Lines or JSON) or folders of runs."),
]


def command(
    records: Records,
    limit: Annotated[int, typer.Option(min=1, help="Number of nearest references to show.")] = 10,
    everything: Annotated[bool, typer.Option("--all", help="Show all references.")] = False,
    markdown: AsMarkdown = False,
    as_json: AsJson = False,
) -> None:
    """Compare records with all published references of similar settings, and list what is not comparable."""
    from calotype.bench.references import report
    from calotype.bench.references.from_records import read_records
    from calotype.bench.references.load import distinct
    from calotype.bench.references.nearest import compare
    from calotype.cli.output import print_json

    read = read_records(records)
    for problem in read.skipped:
        typer.echo(f"skipped {problem}", err=True)
    found = [compare(record, distinct()) for record in read.entries]
    most = None if everything else limit
    if as_json:
        print_json([report.as_values(comparison, most) for comparison in found])
    elif markdown:
        typer.echo("\n".join(report.as_markdown(comparison, most) for comparison in found))
    else:
        for comparison in found:
            _show(comparison, most)


def _show(comparison: "Comparison", limit: int | None) -> None:
    from calotype.bench.references import report
    from calotype.cli.bench_sweep import print_lines
    from calotype.cli.output import console

    out = console()
    out.print(report.headline(comparison), style="bold")
    shown = report.rows(comparison, limit)
    if not shown:
        out.print("No reference has comparable settings.")
        return
    print_lines(shown)
    for line in report.flagged(comparison, limit):
        out.print(f"⚑ {line}")
    out.print(report.remainder(comparison, limit))
