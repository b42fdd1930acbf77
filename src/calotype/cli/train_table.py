"""`calotype train table`: run a table of training benchmarks, one process per row."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder


def table(
    name: Annotated[str, typer.Argument(help="Table name or YAML file.")],
    out: Annotated[
        Path, typer.Option(help="Output folder for the records and the table; an existing one is resumed.")
    ],
    row_limit_s: Annotated[
        float | None, typer.Option(min=0, help="Abort a row after this many seconds.")
    ] = None,
    ceiling_tflops: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Peak TFLOP/s of the device for MFU. Default: measured by each row."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run every row of a benchmark table; failed rows hold the reason. Run the command again to resume.

    Built-in tables: sd1-grid, sd1-ablation, sd2-base-grid. Rows with several devices start torchrun.
    """
    from calotype.cli.output import print_json
    from calotype.cli.progress import show_progress
    from calotype.train.benchmark_table import TablePlan, run_table, table_of
    from calotype.train.recipes import load_table

    given = {"--ceiling-tflops": ceiling_tflops, "--device": device, "--models": models}
    options = tuple(f"{option}={value}" for option, value in given.items() if value is not None)
    with show_progress() as bar:
        done = run_table(TablePlan(load_table(name), out, options, row_limit_s), bar)
    if as_json:
        print_json(done.records)
    elif done.records:
        typer.echo(table_of(done.records))
    if not done.finished:
        typer.echo("stopped; run the same command to resume", err=True)
