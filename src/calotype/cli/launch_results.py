"""What launched jobs measured: the row of a benchmark, the points of a sweep. Measures nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from calotype.launch.backend import JobRecord
    from calotype.spec.records.train_benchmark import BenchmarkRecord

_OUT = "--out="


def show_results(record: "JobRecord", as_json: bool) -> None:
    """Print what a job's folder, or the folder it was told to use, holds."""
    from calotype.bench.records.store import read_all
    from calotype.bench.sweep.table import lines_of
    from calotype.cli.bench_sweep import print_lines
    from calotype.cli.output import print_json
    from calotype.cli.train_launch import RECORD
    from calotype.core.errors import NotFoundError

    row = Path(record.folder) / RECORD
    rows = [_read(row)] if row.exists() else []
    words = record.spec.words()
    told = [
        Path(record.spec.directory or ".", word.removeprefix(_OUT)) for word in words if word.startswith(_OUT)
    ]
    points = read_all(folder for folder in told if folder.exists()).measurements
    if not rows and not points:
        raise NotFoundError(f"{record.id} has measured nothing yet; calotype launch status {record.id}")
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
        raise CalotypeError(f"{file} is no record of a benchmark: {why}; hand the job in again") from None
