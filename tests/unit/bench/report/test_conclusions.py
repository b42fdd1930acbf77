"""What a report concludes from runs of different days, machines and kinds."""

from __future__ import annotations

from pathlib import Path

from calotype.bench.report.build import compose
from calotype.bench.report.document import Report
from calotype.bench.report.load import gather
from calotype.spec.records.measurement import Measurement, Series
from tests.unit.bench.report.conftest import of, section
from tests.unit.bench.report.samples import picture, served, stored, training


def told(report: Report, about: str) -> dict[str, str]:
    """Conclusions of one topic, with their arithmetic."""
    named = [one for one in report.sections if one.name == "conclusions"]
    return {
        row[0].text: row[1].text
        for found in (table for one in named for table in one.tables)
        if found.caption.startswith(about)
        for row in found.rows
    }


def rounds(point: str, *seconds: float, **changes: object) -> list[Measurement]:
    return [picture(point, one, round=n, **changes) for n, one in enumerate(seconds, start=1)]


def test_servers_are_not_set_against_each_other_as_gpus(tmp_path: Path) -> None:
    """Their loads are no settings of a model: any two would seem alike."""
    here, there = (
        [served(name, rate, 0.1, engine=engine).model_copy(update={"device": device, "id": name})]
        for name, rate, engine, device in (("a", 300.0, "nothing", "CPU A"), ("b", 10.0, "calotype", "CPU B"))
    )
    assert told(of(tmp_path, *here, *there), "GPU against GPU") == {}


def test_ours_is_divided_by_the_peer_of_its_own_run(tmp_path: Path) -> None:
    for day, ours, peer in (("monday", 1.0, 2.0), ("tuesday", 2.0, 6.0)):
        stored(
            tmp_path / day,
            picture("ours", ours),
            picture("peer", peer, system="diffusers-eager", preset=None),
        )
    found = told(compose(gather([tmp_path])), "One thing changed")
    assert sorted(found.values()) == [
        "0.5 / 0.1667 samples/s/GPU = 3.0000",
        "1 / 0.5 samples/s/GPU = 2.0000",
    ]


def test_two_models_that_no_catalogue_knows_are_two_models(tmp_path: Path) -> None:
    batches = [
        picture(f"{model} batch={n}", 1.0, model=model, request={"count": n})
        for model, n in (("small", 1), ("large", 8))
    ]
    assert told(of(tmp_path, *batches), "Shapes") == {}


def test_rounds_are_concluded_from_by_their_median_as_tables_tell_them(tmp_path: Path) -> None:
    ours = rounds("ours", 1.0, 1.0, 4.0)
    peer = rounds("peer", 2.0, 2.0, 2.0, system="diffusers-eager", preset=None)
    [arithmetic] = told(of(tmp_path, *ours, *peer), "One thing changed").values()
    assert arithmetic == "1 / 0.5 samples/s/GPU = 2.0000"


def test_gpus_of_several_runs_are_compared_once_a_batch(tmp_path: Path) -> None:
    for day, (old, new) in enumerate(((1.0, 0.5), (1.1, 0.4))):
        for device, seconds in (("NVIDIA A100", old), ("NVIDIA H200", new)):
            stored(tmp_path / f"{day}-{device}", picture("one", seconds, device=device))
    report = compose(gather([tmp_path]))
    [found] = [t for t in section(report, "conclusions").tables if t.caption.startswith("GPU against GPU")]
    [row] = found.rows
    assert row[1].text.startswith("2.5 (batch 1) / 1 (batch 1) = 2.5000")
    assert row[2].text == "at batch 1 on both: 2.5 / 1 = 2.500"


def test_switches_of_a_recipe_are_told_apart_whatever_part_they_are_in(tmp_path: Path) -> None:
    def made(point: str, rate: float, part: str, **changes: object) -> Measurement:
        plain = training(point, rate)
        recipe = {**(plain.recipe or {}), part: {**(plain.recipe or {})[part], **changes}}
        return plain.model_copy(update={"recipe": recipe, "id": point})

    points = (
        made("base", 50.0, "model"),
        made("math", 20.0, "model", attention="math"),
        made("slow optimizer", 40.0, "optimizer", fused=False),
    )
    found = told(of(tmp_path, *points), "One thing changed")
    assert {name.partition(" on ")[0]: sums for name, sums in found.items()} == {
        "attention=math": "20 / 50 samples/s/GPU = 0.4000",
        "optimizer.fused=False": "40 / 50 samples/s/GPU = 0.8000",
    }


def with_steps(point: str, seconds: float, each: float, **request: object) -> Measurement:
    """A point one of whose batches was looked into: so long was each of its evaluations."""
    made = picture(point, seconds, seconds, request=request)
    count = (made.request or {})["steps"]
    return made.model_copy(update={"series": {**made.series, "evaluation": Series.of("s", [each] * count)}})


def test_what_is_outside_the_steps_is_told_once_of_a_run(tmp_path: Path) -> None:
    """The least and the most; a batch that was slower than those by the clock tells nothing."""
    points = (
        with_steps("one step", 1.0, 0.5, steps=1),
        with_steps("ten steps", 5.5, 0.5, steps=10),
        with_steps("slow look", 1.0, 0.5, steps=4),
        with_steps("in between", 2.5, 0.5, steps=4, seed=2),
    )
    found = [line for line in told(of(tmp_path, *points), "Shapes") if "outside" in line]
    where = "1 × NVIDIA H200, calotype fast"
    assert found == [f"ten steps: 9.1% to one step: 50.0% of the time is outside the steps on {where}"]


def test_guidance_is_told_with_the_swing_and_without_what_has_none(tmp_path: Path) -> None:
    seconds = {1.0: 1.0, 4.0: 2.0, 7.0: 2.02, 11.0: 1.98}
    points = [
        picture(f"cfg={cfg:g}", each * 0.97, each, each * 1.03, request={"cfg": cfg})
        for cfg, each in seconds.items()
    ]
    report = of(tmp_path, *points)
    [line] = [line for line in told(report, "Shapes") if line.startswith("guidance")]
    assert line == "guidance between 4 and 11 changes the time by 2.0% on 1 × NVIDIA H200, calotype fast"
    [shapes] = [t for t in section(report, "conclusions").tables if t.caption.startswith("Shapes")]
    assert "within the spread of the runs" in shapes.rows[0][shapes.columns.index("notes")].text
