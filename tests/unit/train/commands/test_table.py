"""Tables of benchmarks: every row has a record, whatever became of it, and none is run twice."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from calotype.bench.records.store import read
from calotype.bench.report.build import compose
from calotype.bench.report.load import gather
from calotype.bench.report.write import write
from calotype.core.errors import NotFoundError, RequestError
from calotype.core.progress import Silent
from calotype.spec.benchmark_table import BenchmarkTable
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import FILE, VARIANT
from calotype.spec.records.train_benchmark import COLUMNS, BenchmarkRecord, DeviceMemory
from calotype.train import benchmark_table as module
from calotype.train.benchmark_table import TablePlan, run_table
from calotype.train.checkpoint import StopSignal
from calotype.train.child_process import run_child
from calotype.train.recipes import load_recipe, load_table, table_names
from calotype.train.timing import Timed, window_of
from tests.unit.train.children import surroundings
from tests.unit.train.commands.conftest import Calotype
from tests.warm_python import warm_python

ROWS = {"small": ("model.micro_batch_size=1", "model.global_batch_size=1"), "large": ("model.use_ema=false",)}


class Child:
    """Stands for the process of a row: writes the record it would have, or does as it is told."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.instead: dict[str, Any] = {}

    def __call__(self, command: Sequence[str], log: Path, *, limit_s: Any, stop: StopSignal) -> str | None:
        del limit_s
        self.commands.append(list(command))
        [file] = [Path(word.removeprefix("--record=")) for word in command if word.startswith("--record=")]
        log.write_text("words", encoding="utf-8")
        told = self.instead.get(file.stem)
        if told is not None:
            return str(told(stop))
        words = list(command[command.index("train") + 1 :])
        recipe = load_recipe(words[0], [word for word in words[1:] if not word.startswith("-")]).recipe
        file.write_text(record_of(recipe).model_dump_json(), encoding="utf-8")
        return None


def record_of(recipe: Recipe, **changes: Any) -> BenchmarkRecord:
    values: dict[str, Any] = {
        "outcome": "OK",
        "message": None,
        "gpu": "H200",
        "command": "calotype",
        "recipe": recipe.model_dump(mode="json"),
        "devices": 1,
        "nodes": 1,
        "warmup_steps": 10,
        "warmup_step_s": [],
        "steps": 30,
        "ceiling_tflops": 800.0,
        "window": window_of(Timed(120.0, [4.0] * 30, None, [1.0] * 30), recipe, tflop=100.0, ceiling=800.0),
        "memory": [DeviceMemory(allocated_bytes=2**30, reserved_bytes=2**31, total_bytes=2**37)],
        "fingerprint": {},
    }
    return BenchmarkRecord(**{**values, **changes})


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    made = Child()
    monkeypatch.setattr(module, "run_child", made)
    return made


def plan_of(folder: Path, rows: dict[str, tuple[str, ...]], **changes: Any) -> TablePlan:
    return TablePlan(BenchmarkTable(recipe="sd15", rows=rows), folder, **changes)


def cells(folder: Path) -> list[dict[str, str]]:
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in (folder / "table.md").read_text(encoding="utf-8").splitlines()
    ]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_table_has_the_known_columns_and_what_they_lack(child: Child, tmp_path: Path) -> None:
    assert run_table(plan_of(tmp_path, ROWS, options=("--device=cuda",)), Silent()).finished
    small, large = cells(tmp_path)
    assert tuple(small) == ("row", *COLUMNS, "MFU", "outcome", "peak memory")
    assert (small["row"], small["Micro Batch"], small["outcome"]) == ("small", "1", "OK")
    assert (large["row"], large["Micro Batch"], large["peak memory"]) == ("large", "16", "1024MiB")
    assert (small["samples/gpu/s"], small["MFU"]) == ("0.25", "3.1%")
    assert all(command[:3] == [sys.executable, "-m", "calotype"] for command in child.commands)
    assert all("--device=cuda" in command and "--benchmark" in command for command in child.commands)


def test_reports_read_a_table_as_measurements(child: Child, tmp_path: Path) -> None:
    rows = {"base": (), "dead": ("model.compile=true",), "small": ROWS["small"]}
    child.instead["dead"] = lambda _: "ended with code -9: Killed"
    run_table(plan_of(tmp_path, rows), Silent())
    found = read(tmp_path / FILE).measurements
    assert [(one.point, one.status) for one in found] == [("base", "ok"), ("dead", "error"), ("small", "ok")]
    assert [one.settings[VARIANT] for one in found] == ["all", "with dead", "with small"]
    run_table(plan_of(tmp_path / "grid", ROWS), Silent())
    assert all(not one.settings for one in read(tmp_path / "grid" / FILE).measurements)
    write(compose(gather([tmp_path]), None), tmp_path / "report")
    shown = (tmp_path / "report" / "report.md").read_text()
    (group,) = re.findall(r"Gain of each pass or switch: (.*)\.\*\*", shown)
    assert group == f"train sd15 on {found[0].device}"
    # One sample in the time of sixteen.
    assert re.search(r"\| small \(batch 1\) \| 0\.06× ", shown)
    assert re.search(r"\| dead \| \*\*failed\*\*", shown)


def test_rows_that_are_recorded_are_not_run_again(child: Child, tmp_path: Path) -> None:
    run_table(plan_of(tmp_path, ROWS), Silent())
    before = (tmp_path / "table.md").read_text()
    run_table(plan_of(tmp_path, ROWS), Silent())
    assert len(child.commands) == 2
    assert (tmp_path / "table.md").read_text() == before
    # But one that now asks for something else is, and so is one whose record is cut off.
    run_table(plan_of(tmp_path, {**ROWS, "large": ("model.compile=true",)}), Silent())
    assert "model.compile=true" in child.commands[2]
    record = tmp_path / "records" / "small.json"
    record.write_bytes(record.read_bytes()[:-40])
    run_table(plan_of(tmp_path, ROWS), Silent())
    assert len(child.commands) == 5


def test_a_setting_that_came_later_runs_no_row_again(child: Child, tmp_path: Path) -> None:
    run_table(plan_of(tmp_path, ROWS), Silent())
    for row in ROWS:
        file = tmp_path / "records" / f"{row}.json"
        record = json.loads(file.read_bytes())
        del record["recipe"]["optimizer"]["one_pass"]
        file.write_text(json.dumps(record))
    run_table(plan_of(tmp_path, ROWS), Silent())
    assert len(child.commands) == 2
    run_table(plan_of(tmp_path, {"small": (*ROWS["small"], "optimizer.one_pass=true")}), Silent())
    assert len(child.commands) == 3


def test_what_cannot_be_run_is_a_row(child: Child, tmp_path: Path) -> None:
    rows = {"refused": ("trainer.device=2", "model.global_batch_size=32"), "dead": (), **ROWS}
    child.instead["dead"] = lambda _: "ended with code -9: Killed"
    assert run_table(plan_of(tmp_path, rows), Silent()).finished
    refused, dead, *others = cells(tmp_path)
    assert "trainer.device: is not a known setting" in refused["samples/gpu/s"]
    assert (refused["outcome"], refused["Global Batch"], refused["MFU"]) == ("Error!", "32", "")
    assert dead["samples/gpu/s"] == "Error! ended with code -9: Killed"
    assert json.loads((tmp_path / "records" / "dead.json").read_text())["outcome"] == "Error!"
    assert [row["outcome"] for row in others] == ["OK", "OK"]
    assert len(child.commands) == 3


def test_a_request_to_stop_leaves_the_row_to_the_next_time(child: Child, tmp_path: Path) -> None:
    def interrupted(stop: StopSignal) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        return "stopped"

    child.instead["large"] = interrupted
    done = run_table(plan_of(tmp_path, ROWS), Silent())
    assert (done.finished, list(done.records)) == (False, ["small"])
    assert [row["row"] for row in cells(tmp_path)] == ["small"]
    child.instead.clear()
    assert run_table(plan_of(tmp_path, ROWS), Silent()).finished
    assert [row["row"] for row in cells(tmp_path)] == ["small", "large"]
    assert len(child.commands) == 3


def test_several_devices_are_started_together(child: Child, tmp_path: Path) -> None:
    run_table(plan_of(tmp_path, {"two": ("trainer.devices=2", "model.global_batch_size=32")}), Silent())
    assert child.commands[0][1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def test_a_real_row_and_one_that_takes_too_long(
    calotype: Calotype, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", surroundings()["PYTHONPATH"])
    monkeypatch.setattr(sys, "executable", warm_python())
    values = {
        "recipe": str(recipe_file),
        "overrides": ["data.kind=synthetic", "data.path=null"],
        "steps": 1,
        "warmup_steps": 0,
        "rows": {"real": []},
    }
    file = tmp_path / "table.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    words = ("train", "table", file, "--out", "out", "--device", "cpu")
    seen = calotype(*words, "--row-limit-s", 0)
    assert seen.code == 0
    assert "Error! ran past the limit of 0 s for a row" in seen.out
    (tmp_path / "out" / "records" / "real.json").unlink()
    seen = calotype(*words, "--json")
    record = json.loads(seen.out)["real"]
    assert (seen.code, record["outcome"], record["steps"]) == (0, "OK", 1)
    assert record["window"]["samples"] == 2


def test_a_child_that_fails_is_told_by_its_last_words(tmp_path: Path) -> None:
    def python(code: str, limit_s: float | None = None) -> str | None:
        return run_child([sys.executable, "-c", code], tmp_path / "log", limit_s=limit_s, stop=StopSignal())

    assert python("print('fine')") is None
    assert python("import sys; print('no', file=sys.stderr); sys.exit(3)") == "ended with code 3: no"
    assert python("import sys; sys.exit(3)") == "ended with code 3: it wrote no output"


def test_who_is_given_up_is_ended_with_all_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    grandchild = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"

    class AsSoonAsItIsThere(StopSignal):
        @property
        def requested(self) -> bool:
            return note.exists() and note.read_text() != ""

    why = run_child([sys.executable, "-c", code], tmp_path / "log", limit_s=None, stop=AsSoonAsItIsThere())
    assert why is not None
    # It may be a zombie until whoever took it over looks after it.
    status = Path(f"/proc/{note.read_text()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("name", table_names())
def test_every_table_that_comes_along_can_be_run(name: str) -> None:
    table = load_table(name)
    for own in table.rows.values():
        # A table may be ahead of the keys that this version knows; its row then says so.
        known = [override for override in own if not override.startswith("trainer.strategy=")]
        recipe = load_recipe(table.recipe, [*table.overrides, *known]).recipe
        assert (recipe.model.precision, recipe.data.kind) == ("bf16", "synthetic")


def test_the_known_grids_are_there() -> None:
    def batches(name: str) -> list[tuple[int, int, int]]:
        table = load_table(name)
        recipes = [load_recipe(table.recipe, own).recipe for own in table.rows.values()]
        return [(r.model.micro_batch_size, r.model.global_batch_size, r.trainer.devices) for r in recipes]

    assert batches("sd1-grid") == [
        (1, 1, 1),
        (4, 4, 1),
        (4, 16, 1),
        (8, 8, 1),
        (8, 16, 1),
        (16, 16, 1),
        (32, 32, 1),
        (64, 64, 1),
        (64, 128, 2),
    ]
    assert [micro for micro, _, _ in batches("sd2-base-grid")] == [4, 8, 12, 16, 20, 20, 32]


def test_tables_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="sd1-grid"):
        load_table("sd1-gird")
    file = tmp_path / "bad.yaml"
    file.write_text("recipe: sd15\nrow: {}\nrows: {../up: []}\n", encoding="utf-8")
    with pytest.raises(RequestError) as refused:
        load_table(str(file))
    assert "row: is not a known setting" in str(refused.value)
    assert "../up" in str(refused.value)
