"""Published tables with ours in the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calotype.bench.report.document import Report, Table
from calotype.spec.records.measurement import Measurement
from tests.unit.bench.report.conftest import of, section
from tests.unit.bench.report.samples import picture, training


def rows(found: Table) -> dict[str, dict[str, str]]:
    return {
        row[0].text: dict(zip(found.columns, (cell.text for cell in row), strict=True)) for row in found.rows
    }


def tables(report: Report) -> dict[str, Table]:
    """By source and what they are about."""
    return {
        found.caption.partition(",")[0].partition(" (")[0]: found
        for found in section(report, "published").tables
    }


def switched(point: str, rate: float, **switches: Any) -> Measurement:
    """A row of an ablation around SD 1 at 16/16, channels last and without EMA as NeMo's has it."""
    made = training(point, rate, batch=16, settings={"variant": f"with {point}"}, model="sd15")
    model = {"base": "sd15", "use_ema": False, "channels_last": True}
    asked = {key: value for key, value in switches.items() if "." not in key}
    recipe = {**(made.recipe or {}), "model": {**(made.recipe or {})["model"], **model, **asked}}
    return made.model_copy(update={"recipe": recipe, "id": point})


def test_a_published_page_has_ours_row_by_row(report: Report) -> None:
    found = tables(report)
    assert list(found) == [
        "comfyui: by resolution",
        "comfyui: shortest and longest of five tries by number of steps",
        "comfyui: by guidance",
        "comfyui: by batch",
    ]
    sizes = rows(found["comfyui: by resolution"])
    assert list(sizes) == ["1: 512×512", "2: 768×768", "3: 1280×768", "4: 1024×1024"]
    wide = sizes["4: 1024×1024"]
    seconds = sorted(1024 * 1024 / 2.2e5 * wobble for wobble in (1, 1.02, 0.985, 1.01))
    ours = (seconds[1] + seconds[2]) / 2
    assert (wide["theirs"], wide["ours"]) == ("12.29", f"{ours:.3f}")
    assert wide["our point"] == "size=1024x1024"
    assert wide["their GiB"] == f"{18.3e9 / 2**30:.1f}"
    assert "GPU: NVIDIA H200 vs. A100" in found["comfyui: by resolution"].note
    assert "Row 4: doubtful" in found["comfyui: by resolution"].note


def test_a_range_counts_with_its_fast_end(tmp_path: Path) -> None:
    asked = {"width": 1024, "height": 1024}
    points = [picture(f"steps={n}", 1.0, request={**asked, "steps": n}) for n in (2, 4, 8)]
    [found] = tables(of(tmp_path, *points)).values()
    told = rows(found)
    assert (told["2: 2 steps"]["theirs"], told["2: 2 steps"]["times as fast"]) == ("0.63–1.37", "0.63×")
    assert told["1: 1 step"]["ours"] == "not measured"


def test_an_ablation_stands_in_the_rows_of_the_published_one(tmp_path: Path) -> None:
    """What a switch gives there and here; a row that failed there; one that has no counterpart."""
    found = tables(
        of(
            tmp_path,
            switched("base", 50.0),
            switched("compile", 80.0, compile=True),
            switched("graphs", 60.0, cuda_graphs=True),
            switched("flash", 45.0, attention="flash"),
            switched("both", 90.0, compile=True, cuda_graphs=True),
            switched("not-last", 40.0, channels_last=False),
        )
    )
    told = rows(next(one for name, one in found.items() if name.startswith("nemo: A100")))
    by_point = {row["our point"]: row for row in told.values()}
    assert by_point["not-last"]["theirs"] == "24"
    assert (by_point["not-last"]["their gain"], by_point["not-last"]["our gain"]) == (
        "0.83×",
        "0.80×",
    )
    flash = by_point["flash"]
    assert (flash["their gain"], flash["our gain"]) == (f"{28.8 / 29:.2f}×", "0.90×")
    failed = next(row for name, row in told.items() if name.startswith("12: "))
    assert (failed["theirs"], failed["ours"]) == ("error", "60.00")
    concat = next(row for name, row in told.items() if "concat_mode" in name)
    assert concat["ours"] == "not measured"


def test_a_table_that_would_be_gaps_is_left_out(tmp_path: Path) -> None:
    found = of(tmp_path, switched("base", 50.0))
    assert "published" not in [one.name for one in found.sections]


def test_trials_are_one_row(tmp_path: Path) -> None:
    asked = {"steps": 50, "cfg": 7.5}
    found = tables(of(tmp_path, picture("octopus", 0.5, request=asked, model="sd15")))
    told = rows(found["deepspeed-mii: five trials of MII"])
    [row] = told.values()
    assert [name.partition(":")[0] for name in told] == ["mean of 5"]
    assert (row["theirs"], row["times as fast"]) == ("1.268", "2.54×")
