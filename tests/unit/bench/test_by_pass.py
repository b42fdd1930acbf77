"""benchmarks/by_pass.py: what it measures one after the other, and its lines."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from calotype.engine.presets import all_passes, pass_names

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def by_pass(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("by_pass")


def test_one_pass_more_each_time_until_it_is_fast(by_pass: Any) -> None:
    (_, first), *others = by_pass.lists("cuda")
    assert first == "baseline"
    # Refused if a pass misses what it builds on.
    found = [{one.name for one in all_passes(preset)} for _, preset in others]
    for (label, _), less, more in zip(others[1:], found, found[1:], strict=False):
        assert less < more
        assert more - less == set(label.split(" and "))
    assert found[-1] == set(pass_names("fast", "cuda"))


def test_kernels_are_summed_by_their_kind(by_pass: Any) -> None:
    kernels = {"nvjet_sm90_tst_320x128": 1.5, "nvjet_sm90_hsh_168x128": 1.0, "_attention": 0.25}
    line = by_pass.line("+ this", {"kernels": kernels, "kernels_ms": 2.75, "evaluation_ms": 3.0})
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    named = dict(zip(by_pass.KINDS, cells[1:], strict=False))
    assert (cells[0], named["matmul"], named["attention"]) == ("+ this", "2.50", "0.25")
    assert cells[-2:] == ["2.75", "3.00"]
