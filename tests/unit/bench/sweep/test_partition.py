"""Parts of a sweep share its points between them, and together they are the sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from calotype.bench.sweep.partition import folder_of, parse_part
from calotype.bench.sweep.runner import SweepPlan, run_sweep
from calotype.core.errors import RequestError
from calotype.core.progress import Silent
from calotype.spec.records.measurement import FILE
from tests.unit.bench.sweep.children import Children
from tests.unit.bench.sweep.conftest import points


def test_what_parts_have_measured_is_not_measured_again(children: Children, tmp_path: Path) -> None:
    out, asked = tmp_path / "run", points(1, 2, 3)
    for part in (0, 2):
        mine = asked[part::3]
        run_sweep(SweepPlan(mine, folder_of(out, part), command=children.command), Silent())
    assert children.ran() == ["batch=1/1", "batch=3/1"]
    done = run_sweep(SweepPlan(asked, out, command=children.command), Silent())
    assert children.ran()[2:] == ["batch=2/1"]
    assert [one.point for one in done.measurements] == ["batch=1", "batch=2", "batch=3"]
    assert len((out / FILE).read_text().splitlines()) == 1


@pytest.mark.parametrize(("text", "part"), [("0/1", (0, 1)), ("3/4", (3, 4))])
def test_parts_are_counted_from_0(text: str, part: tuple[int, int]) -> None:
    assert parse_part(text) == part


@pytest.mark.parametrize("text", ["4/4", "-1/4", "1", "1/0", "a/b", "1/2/3"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="write I/N with I from 0 to N − 1"):
        parse_part(text)
