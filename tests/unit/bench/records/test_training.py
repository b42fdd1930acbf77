"""Training benchmarks read as measurements, those that are committed included."""

from __future__ import annotations

from pathlib import Path

import pytest

from calotype.bench.records.columns import COLUMNS, rows_of
from calotype.bench.records.store import Stored
from calotype.spec.records.measurement_training import measurement_of
from calotype.spec.records.train_benchmark import BenchmarkRecord

COMMITTED = Path(__file__).parents[4] / "benchmarks" / "2026-11-15-training"


@pytest.fixture(scope="module")
def record() -> BenchmarkRecord:
    return BenchmarkRecord.model_validate_json((COMMITTED / "ours-in-loop.json").read_bytes())


def test_a_committed_record_keeps_all_its_figures(record: BenchmarkRecord) -> None:
    made = measurement_of(record, "in-loop", settings={"micro_batch": 64})
    window = record.window
    assert window
    assert made.work
    assert made.wall
    assert made.status == "ok"
    assert (made.samples_per_s, made.samples_per_unit) == (window.samples_per_s, 64)
    assert made.work.share_of_ceiling == pytest.approx(window.mfu)
    assert made.series["wall"].values == window.host_step_s
    assert made.series["device"].values == window.device_step_s
    assert made.memory[0].reserved_bytes == record.memory[0].reserved_bytes
    assert made.preparation.warmup_s == record.warmup_step_s
    assert made.preparation.compile_s == pytest.approx(record.warmup_step_s[0] - made.wall.median)
    assert made.seconds_in_all == record.seconds_in_all
    assert made.commit == record.fingerprint["machine"]["commit"]


def test_the_same_question_has_the_same_id(record: BenchmarkRecord) -> None:
    other = record.model_copy(update={"steps": 21})
    renamed = measurement_of(record, "another name", round_number=2)
    assert renamed.id == measurement_of(record, "x").id != measurement_of(other, "x").id


def test_a_failed_row_is_a_measurement_too(record: BenchmarkRecord) -> None:
    failed = record.model_copy(update={"outcome": "OOM", "message": "no room", "window": None})
    made = measurement_of(failed, "x")
    assert (made.status, made.message, made.series, made.work) == ("oom", "no room", {}, None)
    row = dict(zip([column.name for column in COLUMNS], rows_of(Stored(Path("f"), 1, made)), strict=True))
    assert (row["batch"], row["model"], row["wall_median_s"]) == (64, "sd2-base", None)
