"""`calotype bench scale` as it is meant: one and two ranks by the clock, then a study with its plot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from calotype.bench.records.store import read_all
from calotype.cli.main import run
from calotype.spec.records.scaling import FILE, ScalingRecord
from tests.small_models import shrunk_folder
from tests.unit.train.children import surroundings
from tests.unit.train.runs import arguments, settings
from tests.warm_python import warm_python


def test_ranks_of_this_machine_are_measured_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, recipe, out = shrunk_folder(tmp_path, "emoji"), tmp_path / "small.yaml", tmp_path / "study"
    recipe.write_text("{}", encoding="utf-8")
    for name, value in surroundings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", warm_python())
    keys = settings(base, tmp_path / "run", model__micro_batch_size=1)
    command = ["bench", "scale", str(recipe), *arguments(keys), "--device=cpu", f"--out={out}"]
    command += ["--devices=1,2", "--units=3", "--warmup=1", "--nodes=1", "--gpus-per-node=2"]
    assert run(command) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out

    found = {(m.devices, m.samples_per_unit): m for m in read_all([out]).measurements}
    # One of a sample each, two of one each, and one that does the work of two.
    assert sorted(found) == [(1, 1), (1, 2), (2, 2)]
    assert {m.status for m in found.values()} == {"ok"}
    speed = {place: m.samples_per_s or 0.0 for place, m in found.items()}
    record = ScalingRecord.model_validate_json((out / FILE).read_bytes())
    both = {(one.mode, one.gpus): one for one in record.measured}
    assert both["weak", 2].efficiency == pytest.approx(speed[2, 2] / 2 / speed[1, 1])
    assert both["strong", 2].efficiency == pytest.approx(speed[2, 2] / 2 / speed[1, 2])
    assert record.fit is not None
    assert len(record.fit.points) == 3
    assert {(one.mode, one.gpus) for one in record.predictions} == {("weak", 2), ("strong", 2)}
    assert "prediction, not measured" in printed
    assert "no GPU was measured" in printed

    # What is measured stays so: the same command only studies it again.
    before = {each.name: each.read_bytes() for each in out.glob("*.jsonl")}
    assert run([*command, "--json"]) == 0
    assert {each.name: each.read_bytes() for each in out.glob("*.jsonl")} == before
    assert run(["report", str(out), f"--out={tmp_path / 'report'}"]) == 0
    drawn = (tmp_path / "report" / "figures" / "scaling-study-1.svg").read_text(encoding="utf-8")
    assert "CPU ranks, logarithmic" in drawn
