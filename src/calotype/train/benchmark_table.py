"""Run a table of benchmarks, each row in a child process, and keep a record of each row.

A failed row has a record too, so the table has no gaps. Rows that are already recorded do not run again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from calotype.core.errors import RequestError
from calotype.core.paths import atomic_write
from calotype.core.progress import Progress
from calotype.spec.benchmark_table import BenchmarkTable
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import FILE, VARIANT, Measurement, Setting
from calotype.spec.records.measurement_training import measurement_of
from calotype.spec.records.train_benchmark import BenchmarkRecord, markdown
from calotype.train.checkpoint import StopSignal, claimed
from calotype.train.child_process import run_child
from calotype.train.recipes import as_written, load_recipe

RECORDS, TABLE = "records", "table.md"
BASE = "base"
"""The row with the recipe unchanged, in tables whose other rows each change one thing."""


@dataclass(frozen=True)
class TablePlan:
    """What to run, where the records go, and how."""

    table: BenchmarkTable
    folder: Path
    options: tuple[str, ...] = ()
    """Added to every command line."""
    row_limit_s: float | None = None
    """A row that takes longer is stopped."""


@dataclass(frozen=True)
class TableOutcome:
    records: dict[str, BenchmarkRecord]
    """By row, in the table's order, as far as the run got."""
    finished: bool
    """False after a stop signal; the same command resumes."""


def run_table(plan: TablePlan, progress: Progress) -> TableOutcome:
    """Run the rows that have no record yet. The table is written after every row."""
    rows = [_Row(plan, name, (*plan.table.overrides, *own)) for name, own in plan.table.rows.items()]
    with claimed(plan.folder), StopSignal() as stop:
        (plan.folder / RECORDS).mkdir(exist_ok=True)
        progress.start("rows", len(rows))
        records: dict[str, BenchmarkRecord] = {}
        for row in rows:
            progress.describe(row.name)
            record = None if stop.requested else row.record(stop)
            if record is None:
                return TableOutcome(records, finished=False)
            records[row.name] = record
            with atomic_write(plan.folder / TABLE, "w") as file:
                file.write(table_of(records) + "\n")
            with atomic_write(plan.folder / FILE, "w") as file:
                file.writelines(m.model_dump_json() + "\n" for m in measurements_of(records))
            progress.advance()
    return TableOutcome(records, finished=True)


def table_of(records: dict[str, BenchmarkRecord]) -> str:
    """The records as Markdown."""
    return markdown([{"row": name, **r.row(), **r.figures()} for name, r in records.items()])


def measurements_of(records: dict[str, BenchmarkRecord]) -> list[Measurement]:
    """The records as measurements for reports and queries; with a base row, as variants of an ablation."""

    def settings(name: str) -> dict[str, Setting]:
        if BASE not in records:
            return {}
        return {VARIANT: "all" if name == BASE else f"with {name}"}

    return [measurement_of(record, name, settings=settings(name)) for name, record in records.items()]


class _Row:
    """One command line and the record it produces."""

    def __init__(self, plan: TablePlan, name: str, overrides: Sequence[str]) -> None:
        self.name = name
        self._plan, self._overrides = plan, list(overrides)
        self._file = plan.folder / RECORDS / f"{name}.json"

    def record(self, stop: StopSignal) -> BenchmarkRecord | None:
        """The existing record if it still applies, else that of a new run; None after a stop signal."""
        try:
            recipe = load_recipe(self._plan.table.recipe, self._overrides).recipe
        except RequestError as error:
            recipe_values = as_written(self._plan.table.recipe, self._overrides)
            if not _has_row_values(recipe_values):
                raise
            return self._failed(str(error), recipe_values)
        existing = self._read_record()
        if existing is not None and self._matches(existing, recipe):
            return existing
        self._file.unlink(missing_ok=True)
        log = self._file.with_suffix(".log")
        failure = run_child(self._command(recipe), log, limit_s=self._plan.row_limit_s, stop=stop)
        new_record = self._read_record()
        if new_record is not None or stop.requested:
            return new_record
        return self._failed(failure or f"left no record; see {log}", recipe.model_dump(mode="json"))

    def _read_record(self) -> BenchmarkRecord | None:
        try:
            return BenchmarkRecord.model_validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return None

    def _matches(self, record: BenchmarkRecord, recipe: Recipe) -> bool:
        """Whether the record was made with the table's current settings."""
        table = self._plan.table
        if (record.steps, record.warmup_steps) != (table.steps, table.warmup_steps):
            return False
        try:
            # A setting that is newer than the record has its default there.
            return Recipe.parse(record.recipe) == recipe
        except RequestError:
            return False

    def _command(self, recipe: Recipe) -> list[str]:
        launcher = ["-m", "calotype"]
        if recipe.trainer.devices > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone"]
            launcher += [f"--nproc-per-node={recipe.trainer.devices}", "-m", "calotype"]
        return [sys.executable, *launcher, *self._arguments(), f"--record={self._file}", *self._plan.options]

    def _arguments(self) -> list[str]:
        table = self._plan.table
        counts = [f"--benchmark-steps={table.steps}", f"--warmup-steps={table.warmup_steps}"]
        return ["train", table.recipe, *self._overrides, "--benchmark", *counts]

    def _failed(self, message: str, recipe: dict[str, Any]) -> BenchmarkRecord:
        """A record for a run that could not write one itself."""
        record = BenchmarkRecord(
            outcome="Error!",
            message=message,
            gpu="",
            command=" ".join(["calotype", *self._arguments()]),
            recipe=recipe,
            devices=recipe["trainer"]["devices"],
            nodes=recipe["trainer"]["nodes"],
            warmup_steps=self._plan.table.warmup_steps,
            warmup_step_s=[],
            steps=self._plan.table.steps,
            ceiling_tflops=None,
            window=None,
            memory=[],
            fingerprint={},
        )
        with atomic_write(self._file, "w") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
        return record


def _has_row_values(recipe: dict[str, Any]) -> bool:
    """Whether a refused recipe still holds the values that the cells of a row need."""
    if not all(isinstance(recipe[part], dict) for part in ("model", "data", "trainer")):
        return False
    return all(isinstance(recipe["trainer"][count], int) for count in ("devices", "nodes"))
