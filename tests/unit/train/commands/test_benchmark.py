"""The benchmark: its row, its record, and failures that are rows too."""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.models import catalogue
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement_training import measurement_of
from calotype.spec.records.train_benchmark import COLUMNS, BenchmarkRecord, DeviceMemory
from calotype.train import benchmark as module
from calotype.train.benchmark import BenchmarkPlan, benchmark
from calotype.train.distributed.process_group import Rank
from calotype.train.flops import training_tflop
from calotype.train.timing import Timed, window_of
from calotype.train.trainer import NonFiniteError, Trainer
from tests.unit.train.commands.conftest import MICRO, Calotype, Recipes

SHORT = ("--benchmark", "--benchmark-steps", 2, "--warmup-steps", 1, "--device", "cpu")
CPU = torch.device("cpu")


class _NothingKnown:
    def as_dict(self) -> dict[str, Any]:
        return {}


class _Fails:
    """A loop that cannot even be built."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, *_: object) -> Trainer:
        raise self._error


@pytest.fixture
def quick_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking the machine about itself takes longer than these trainings."""
    monkeypatch.setattr(module, "full_fingerprint", _NothingKnown)


def _cells(table: str) -> dict[str, str]:
    head, rule, row = table.strip().splitlines()
    assert set(rule) <= set("|:- ")
    names, values = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in (head, row))
    return dict(zip(names, values, strict=True))


def _failing(monkeypatch: pytest.MonkeyPatch, error: Exception, after: int) -> None:
    """The update after so many fails."""
    update = Trainer.train_step
    done: list[Any] = []

    def failing(self: Trainer, batches: Any) -> Any:
        if len(done) == after:
            raise error
        done.append(update(self, batches))
        return done[-1]

    monkeypatch.setattr(Trainer, "train_step", failing)


def test_the_row_and_the_record(calotype: Calotype, recipe_file: Path, tmp_path: Path) -> None:
    before, asked_at = set(tmp_path.rglob("*")), datetime.now(UTC)
    seen = calotype(
        "train", recipe_file, *SHORT, "--record", "out.json", "data.kind=synthetic", "data.path=null"
    )
    assert (seen.code, seen.err) == (0, "")
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "out.json"}
    cells = _cells(seen.out)
    assert tuple(cells) == COLUMNS
    assert cells["GPU Type"].startswith("CPU")
    assert [cells[name] for name in ("precision", "Datasets", "Devices", "Nodes")] == [
        "fp32",
        "synthetic",
        "1",
        "1",
    ]
    assert (cells["Micro Batch"], cells["Global Batch"], cells["samples"]) == ("2", "2", "4")
    assert cells["command"].startswith("calotype train ")
    assert "data.kind=synthetic data.path=null --benchmark --benchmark-steps=2" in cells["command"]

    record = json.loads((tmp_path / "out.json").read_text())
    window = record["window"]
    assert (record["outcome"], record["message"], record["memory"]) == ("OK", None, [])
    assert len(record["warmup_step_s"]) == 1
    assert len(window["host_step_s"]) == len(window["losses"]) == 2
    assert all(math.isfinite(loss) for loss in window["losses"])
    assert sum(window["host_step_s"]) <= window["seconds"]
    assert window["samples_per_s"] == pytest.approx(2 * MICRO / window["seconds"])
    assert float(cells["samples/gpu/s"]) == pytest.approx(window["samples_per_device_s"], abs=0.01)
    assert (window["tflop_per_sample"], window["mfu"], window["device_step_s"]) == (None, None, None)
    assert Recipe.parse(record["recipe"]).model.micro_batch_size == MICRO
    assert {"machine", "torch"} <= set(record["fingerprint"])
    assert record["fingerprint"]["torch"]["version"] == str(torch.__version__)
    told = measurement_of(BenchmarkRecord.model_validate(record), "one")
    assert told.started_at
    assert asked_at <= told.started_at <= datetime.now(UTC)


@pytest.mark.usefixtures("quick_fingerprint")
def test_json_is_the_record(calotype: Calotype, recipe_file: Path, tmp_path: Path) -> None:
    seen = calotype("train", recipe_file, *SHORT, "--record", "out.json", "--json")
    assert json.loads(seen.out) == json.loads((tmp_path / "out.json").read_text())


@pytest.mark.usefixtures("quick_fingerprint")
def test_the_record_is_stored_if_nobody_says_where(
    calotype: Calotype, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "load_training_model", _Fails(torch.OutOfMemoryError("no room")))
    told = [calotype("train", recipe_file, *SHORT, f"trainer.seed={seed}").err for seed in (1, 2, 2)]
    files = [tmp_path / text.partition("the record is in ")[2].splitlines()[0] for text in told]
    assert files[1] == files[2] != files[0]
    assert set((tmp_path / "run" / "benchmarks").iterdir()) == set(files)
    assert json.loads(files[0].read_text())["recipe"]["trainer"]["seed"] == 1


@pytest.mark.usefixtures("quick_fingerprint")
def test_the_losses_are_those_of_the_run(recipe_of: Recipes) -> None:
    """A benchmark that did other work than training would be worth nothing."""
    recipe = recipe_of(data={"shuffle": False})
    plans = [BenchmarkPlan("", steps=3, warmup_steps=0), BenchmarkPlan("", steps=1, warmup_steps=2)]
    all_three, last = (benchmark(recipe, plan, device=CPU).record.window for plan in plans)
    assert all_three is not None
    assert last is not None
    assert len(set(all_three.losses)) == 3
    assert last.losses == all_three.losses[2:]


@pytest.mark.usefixtures("quick_fingerprint")
@pytest.mark.parametrize("after", [0, 2])
def test_out_of_memory_is_a_row(
    after: int, calotype: Calotype, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"), after)
    seen = calotype("train", recipe_file, *SHORT, "--record", "out.json")
    assert seen.code == 5
    cells = _cells(seen.out)
    assert cells["samples/gpu/s"].startswith("OOM ")
    assert "lower model.micro_batch_size (now 2)" in cells["samples/gpu/s"]
    assert "lower model.micro_batch_size" in seen.err
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["outcome"], record["window"]) == ("OOM", None)
    assert len(record["warmup_step_s"]) == min(after, 1)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("quick_fingerprint")
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            NonFiniteError("step 1: loss nan | lower it\nor not"),
            2,
            r"Error! step 1: loss nan \| lower it or not",
        ),
        (ZeroDivisionError("by nothing"), 1, "Error! ZeroDivisionError: by nothing"),
    ],
)
def test_any_other_error_is_a_row(
    error: Exception,
    code: int,
    message: str,
    calotype: Calotype,
    recipe_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _failing(monkeypatch, error, after=1)
    with caplog.at_level(logging.ERROR):
        seen = calotype("train", recipe_file, *SHORT, "--record", "out.json")
    assert seen.code == code
    assert message in seen.out
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["outcome"], record["window"]) == ("Error!", None)
    # A bug shows where it is; what a user can put right does not need that.
    assert bool(caplog.records) == (code == 1)


@pytest.mark.usefixtures("quick_fingerprint")
def test_the_first_failure_is_the_one_recorded(
    recipe_of: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, plan = recipe_of(), BenchmarkPlan("", record_file=tmp_path / "out.json")
    place = nullcontext(Rank(1, 2, 1, CPU))
    monkeypatch.setattr(module, "init_process_group", lambda *_: place)
    # Nothing is exchanged before the update, so one process can stand for two.
    monkeypatch.setattr(module, "Trainer", _Fails(torch.OutOfMemoryError("no room")))
    began = time.time()
    assert not benchmark(recipe, plan, device=CPU).is_first
    monkeypatch.setattr(module, "Trainer", _Fails(RuntimeError("connection closed by peer")))
    monkeypatch.setattr(time, "time", lambda: began)
    benchmark(recipe, plan, device=CPU)
    assert json.loads((tmp_path / "out.json").read_text())["outcome"] == "OOM"


@pytest.mark.usefixtures("quick_fingerprint")
def test_data_that_is_not_there_is_a_row(recipe_of: Recipes) -> None:
    recipe = recipe_of(data={"kind": "precomputed", "path": "nowhere"})
    done = benchmark(recipe, BenchmarkPlan(""), device=CPU)
    assert (done.record.outcome, done.exit_code) == ("Error!", 4)
    assert "nowhere" in (done.record.message or "")


def test_settings_that_make_no_sense_are_refused_at_once(calotype: Calotype, recipe_file: Path) -> None:
    with pytest.raises(RequestError) as refused:
        BenchmarkPlan("", steps=0, warmup_steps=-1, ceiling_tflops=0.0)
    assert len(refused.value.problems) == 3
    seen = calotype("train", recipe_file, "--record", "out.json")
    assert (seen.code, "add --benchmark" in seen.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "changes", "tflop"),
    [
        ("sd15", {}, 3 * 0.803 + 0.013 + 1.12),
        ("sd2-base", {"data": {"kind": "precomputed"}}, 3 * 0.804),
        ("sdxl", {"model": {"resolution": 1024}}, 3 * 6.76 + 0.013 + 0.098 + 4.88),
        ("sdxl", {"model": {"resolution": 512}}, None),
        ("sd15", {"model": {"train": "lora"}}, None),
        ("emoji", {}, None),
    ],
)
def test_counted_work(name: str, changes: dict[str, Any], tflop: float | None) -> None:
    assert training_tflop(catalogue.architecture(name), Recipe.parse(changes)) == (
        tflop if tflop is None else pytest.approx(tflop)
    )


def test_speeds_are_per_device_and_mfu_is_of_the_ceiling() -> None:
    recipe = Recipe.parse(
        {"model": {"micro_batch_size": 8, "global_batch_size": 16}, "trainer": {"devices": 2}}
    )
    window = window_of(Timed(4.0, [2.0, 2.0], None, [1.0, 1.0]), recipe, tflop=100.0, ceiling=800.0)
    assert (window.samples, window.samples_per_s, window.samples_per_device_s) == (32, 8.0, 4.0)
    assert (window.tflops_per_device, window.mfu) == (400.0, 0.5)
    assert window_of(Timed(4.0, [4.0], None, [1.0]), recipe, tflop=None, ceiling=800.0).mfu is None


def test_times_and_memory_read_as_in_the_tables(recipe_of: Recipes) -> None:
    window = window_of(Timed(15_708.0, [], None, [1.0]), recipe_of(), None, None)
    record = BenchmarkRecord(
        outcome="OK",
        message=None,
        gpu="H200",
        command="calotype",
        recipe=recipe_of().model_dump(mode="json"),
        devices=1,
        nodes=1,
        warmup_steps=0,
        warmup_step_s=[],
        steps=1,
        ceiling_tflops=None,
        window=window,
        memory=[DeviceMemory(allocated_bytes=2**30, reserved_bytes=2**31, total_bytes=2**37)],
        fingerprint={},
    )
    row = record.row()
    assert (row["time consume"], row["Memory"]) == ("4:21:48", "2048MiB / 131072MiB")
