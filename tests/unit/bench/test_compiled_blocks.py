"""benchmarks/compiled_blocks.py, rehearsed without a GPU: every form of block once, the costliest first."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_a_dry_run_has_every_form_of_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    told = ["--device", "cpu", "--most", "0", "--out", str(tmp_path), "--work", "sd15 512 b16"]
    monkeypatch.setattr(sys, "argv", ["compiled_blocks.py", *told])
    importlib.import_module("compiled_blocks").main()
    rows = json.loads((tmp_path / "results.json").read_text())["blocks"]["sd15 512 b16"]
    # SD 1.5 has 22 residual blocks and 16 layers of transformers.
    assert sum(row["times"] for row in rows) == 38
    assert 10 < len(rows) < 38
    costs = [row["times"] * row["ours_ms"] for row in rows]
    assert costs == sorted(costs, reverse=True)
    assert "0 forms take" in capsys.readouterr().out
