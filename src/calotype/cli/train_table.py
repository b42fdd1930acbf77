"""`calotype train table`: a whole table of benchmarks, every row in a process of its own."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder


def table(
    name: Annotated[str, typer.Argument(help="A table's name, or a YAML file.")],
    out: Annotated[Path, typer.Option(help="A folder for the records and the table, or one to go on with.")],
    row_limit_s: Annotated[float | None, typer.Option(min=0, help="Give up rows that take longer.")] = None,
    ceiling_tflops: Annotated[
        float | None,
        typer.Option(min=1e-6, help="The device's best for MFU; each row measures it if not said."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure every row of a table; rows that fail say so. Goes on where it stopped.

    Ours: sd1-grid, sd1-ablation, sd2-base-grid. Rows with several devices start torchrun by themselves.
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
        typer.echo("stopped; the same command goes on", err=True)
