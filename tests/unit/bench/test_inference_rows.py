"""benchmarks/inference.py, rehearsed without a GPU: which rows it has, and that each is measured once."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FAST, THEIRS = "sd15 512 b1 s50 fast", "sd15 512 b1 s50 diffusers-eager"


@pytest.fixture
def inference(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("inference")


def test_rows_that_compile_for_minutes_come_last(inference: Any) -> None:
    works = inference.works()
    assert len({work.name for work in works}) == len(works)
    compiling = [work.system == "diffusers-compile" for work in works]
    assert compiling == sorted(compiling)
    # Beside what people use, in one run.
    for model, batch in (("sd15", 1), ("sdxl", 1)):
        systems = {work.system for work in works if (work.model, work.batch) == (model, batch)}
        assert systems >= {"fast", "cached", "diffusers-eager", "diffusers-compile"}


def test_a_dry_run_measures_ours_beside_diffusers_and_is_resumed(
    inference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["inference.py", "--device", "cpu", "--out", str(tmp_path), "--only", FAST, THEIRS]
    monkeypatch.setattr(sys, "argv", told)
    inference.main()
    found = json.loads((tmp_path / "results.json").read_text())
    rows = found["rows"]
    assert list(rows) == [FAST, THEIRS]
    for row in rows.values():
        assert "error" not in row
        assert row["range_s"][0] <= row["median_s"] <= row["range_s"][1]
    assert rows[FAST]["evaluation_ms"] > 0
    assert "torch" in found["environment"]
    capsys.readouterr()
    inference.main()
    assert capsys.readouterr().out == ""
