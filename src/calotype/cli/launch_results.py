"""Results of launched benchmarks: the row of a training benchmark, or the points of a sweep."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from calotype.launch.backend import JobRecord
    from calotype.spec.records.train_benchmark import BenchmarkRecord

_OUT = "--out="


def show_results(record: "JobRecord", as_json: bool) -> None:
    """Print the results in the folder of a job, or in the folder of its --out option."""
    from calotype.bench.records.store import read_all
    from calotype.bench.sweep.table import lines_of
    from calotype.cli.bench_sweep import print_lines
    from calotype.cli.output import print_json
    from calotype.cli.train_launch import RECORD
    from calotype.core.errors import NotFoundError

    row = Path(record.folder) / RECORD
    rows = [_read(row)] if row.exists() else []
    words = record.spec.words()
    out_folders = [
        Path(record.spec.directory or ".", word.removeprefix(_OUT)) for word in words if word.startswith(_OUT)
    ]
    points = read_all(folder for folder in out_folders if folder.exists()).measurements
    if not rows and not points:
        raise NotFoundError(f"{record.id} has no results yet; check with calotype launch status {record.id}")
    if as_json:
        print_json({"rows": rows, "points": points})
        return
    for one in rows:
        typer.echo(one.markdown())
    if points:
        print_lines(lines_of(points))


def _read(file: Path) -> "BenchmarkRecord":
    from pydantic import ValidationError

    from calotype.core.errors import CalotypeError
    from calotype.spec.records.train_benchmark import BenchmarkRecord

    try:
        return BenchmarkRecord.model_validate_json(file.read_bytes())
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"]
        raise CalotypeError(f"{file} is not a benchmark record: {why}; submit the job again") from None
