"""benchmarks/memory.py: the published table's rows, each measured once, whatever becomes of a process."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("memory")


def dies_at_the_second(points: Sequence[Any], results: Connection) -> None:
    """Stands in for measuring; the second row of the table has a batch of two."""
    for point in points:
        if point.batch == 2:
            os._exit(9)
        results.send({"predicted_bytes": point.batch})


def test_the_points_are_the_rows_of_the_published_table(memory: Any) -> None:
    found = {(p.batch, p.width, p.height): p.published_gb for p in memory.points("fast", "cuda")}
    assert found == {
        (1, 512, 512): 7.4,
        (2, 512, 512): 7.6,
        (4, 512, 512): 8.8,
        (8, 512, 512): 9.6,
        (16, 512, 512): 18.3,
        (32, 512, 512): 27.6,
        (4, 768, 768): 13.6,
        (4, 1280, 768): 14.7,
        (4, 1024, 1024): 18.3,
    }


def test_a_process_that_dies_costs_one_point(memory: Any) -> None:
    points = memory.points("fast", "cuda")[:4]
    rows = list(memory.run(points, dies_at_the_second))
    assert [memory.Point(**row.pop("point")) for row in rows] == points
    assert rows == [
        {"predicted_bytes": 1},
        {"error": "its process died"},
        {"predicted_bytes": 4},
        {"predicted_bytes": 8},
    ]


def test_a_dry_run_goes_through_every_step_and_is_resumed(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def here(points: Sequence[Any]) -> list[dict[str, Any]]:
        asked.extend(point.name for point in points)
        return [{"point": vars(point), **memory._figures(point)} for point in points]

    monkeypatch.setattr(memory, "run", here)
    main: Callable[[], None] = memory.main
    first = ["low-memory 512x512 b1"]
    for only in (first, [*first, "fast 512x512 b2"]):
        arguments = ["memory.py", "--out", str(tmp_path), "--device", "cpu", "--only", *only]
        monkeypatch.setattr(sys, "argv", arguments)
        main()
    assert asked == ["low-memory 512x512 b1", "fast 512x512 b2"]
    kept = json.loads((tmp_path / "results.json").read_text())
    assert list(kept["rows"]) == asked
    assert len(kept["commands"]) == 2
    assert "machine" in kept["environment"]
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[2].startswith("| 1 | 512×512 | 7.4 | `low-memory` |")


def test_the_table_marks_what_is_not_above_the_published_figure(memory: Any) -> None:
    point = vars(memory.points("low-memory", "cuda")[0])
    figures = {"allocated_bytes": 7.39e9, "reserved_bytes": 7.4e9, "device_bytes": 7.41e9}
    rows = {"a": {"point": point, **figures, "predicted_bytes": 7e9}, "b": {"point": point, "error": "no"}}
    assert memory.table(rows).splitlines()[2:] == [
        "| 1 | 512×512 | 7.4 | `low-memory` | **7.39** | **7.40** | 7.41 | **7.00** |",
        "| 1 | 512×512 | 7.4 | `low-memory` | no | | | |",
    ]
