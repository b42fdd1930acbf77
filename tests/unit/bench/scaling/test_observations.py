"""Studies: efficiency by hand, what published points say of the model, the command and its report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from calotype.bench.report.build import compose
from calotype.bench.report.load import gather
from calotype.bench.report.render_markdown import as_markdown
from calotype.bench.report.write import write
from calotype.bench.scaling.allreduce_model import ring_s
from calotype.bench.scaling.fit import Observed
from calotype.bench.scaling.measure_links import link_of
from calotype.bench.scaling.model import Load, StepModel
from calotype.bench.scaling.observations import scaled, usable
from calotype.bench.scaling.plan import scale_points
from calotype.bench.scaling.predict import PredictionRequest, parameters_of, study
from calotype.bench.scaling.report import published_rows
from calotype.cli.main import run
from calotype.core.errors import RequestError
from calotype.spec.records.measurement import Measurement, Series
from calotype.spec.records.scaling import FILE, LinksRecord, ScalingRecord
from tests.unit.train.children import LONGEST_S, surroundings
from tests.warm_python import warm_python

MODEL = StepModel(per_sample_s=0.02, fixed_s=0.05, inside_s=0.3, overlap=1.0)


def measurement(
    devices: int, batch: int, *, nodes: int = 1, micro: int = 4, device: str = "H100"
) -> Measurement:
    load = Load(nodes, devices, batch // (devices * nodes), micro)
    step = MODEL.step_s(load)
    return Measurement(
        id=f"{devices}-{nodes}-{batch}",
        point=f"{devices}x{nodes} of {batch}",
        kind="train",
        model="sd2-base",
        recipe={
            "model": {"micro_batch_size": micro, "global_batch_size": batch},
            "data": {"kind": "synthetic"},
        },
        settings={"trainer.devices": devices},
        device=device,
        devices=devices,
        nodes=nodes,
        fingerprint={},
        command="calotype train",
        status="ok",
        series={"wall": Series.of("s", [step * (1 + 0.01 * turn) for turn in (-1, 0, 0, 1)])},
        samples_per_unit=batch,
        samples_per_s=batch / step,
    )


OURS = [measurement(d, b) for d in (1, 2, 4, 8) for b in (4 * d, 64)] + [
    measurement(1, 8),
    measurement(2, 32),
]


def test_weak_and_strong_scaling_by_hand() -> None:
    points = [
        Observed("one", Load(1, 1, 8, 4), 1.0),
        Observed("two, as much each", Load(1, 2, 8, 4), 1.25),
        Observed("two, as much in all", Load(1, 2, 4, 4), 0.8),
    ]
    found = {(one.mode, one.gpus): one.efficiency for one in scaled(points)}
    assert found == {
        ("weak", 1): 1.0,
        ("weak", 2): pytest.approx(0.8),
        ("strong", 1): 1.0,
        ("strong", 2): pytest.approx(0.625),
    }


def test_a_study_predicts_what_its_model_was_made_of() -> None:
    record = study(OURS, PredictionRequest("calotype bench scale", {"spread_s": 0.0}))
    assert record.fit is not None
    assert record.fit.error < 1e-3
    last = next(one for one in record.predictions if (one.mode, one.nodes) == ("weak", 64))
    assert (last.gpus, last.gpus_per_node) == (512, 8)
    truth = MODEL.samples_per_s(Load(64, 8, last.samples_per_gpu, 4))
    assert last.samples_per_s == pytest.approx(truth, rel=0.02)
    assert all(one.efficiency <= 1 + 1e-9 for one in record.predictions)
    assert any("assume that communication between nodes is free" in note for note in record.notes)
    given = study(OURS, PredictionRequest("x", {"spread_s": 0.0, "between_s": 2.0}))
    slower = next(one for one in given.predictions if (one.mode, one.nodes) == ("weak", 64))
    assert slower.efficiency < last.efficiency
    assert not given.notes


def test_the_spread_of_steps_is_measured() -> None:
    record = study(OURS, PredictionRequest("x"))
    assert record.fit is not None
    spread = next(one for one in record.fit.parameters if one.name == "spread_s")
    assert spread.source == "measured"
    assert spread.value > 0


def test_devices_are_not_mixed() -> None:
    with pytest.raises(RequestError, match="2 device types"):
        usable([measurement(1, 4), measurement(2, 8, device="H200")])


def test_trainings_are_not_mixed() -> None:
    """Their steps would be taken for steps of one, at loads that both ran for the median of both."""
    first, other = measurement(1, 4), measurement(2, 8)
    with pytest.raises(RequestError, match=r"different trainings \(model: sd2-base and sdxl\)"):
        usable([first, other.model_copy(update={"model": "sdxl"})])

    def compiled(one: Measurement, on: bool) -> Measurement:
        recipe = {**(one.recipe or {}), "model": {**(one.recipe or {})["model"], "compile": on}}
        return one.model_copy(update={"recipe": recipe})

    with pytest.raises(RequestError, match=r"model\.compile: False and True"):
        usable([compiled(first, False), compiled(other, True)])
    # A record from before there was such a setting does not say.
    assert len(usable([first, compiled(other, True)])) == 2


def test_peers_are_not_mixed_in() -> None:
    theirs = measurement(1, 4).model_copy(update={"system": "diffusers-eager"})
    assert usable([measurement(1, 4), theirs]) == [measurement(1, 4)]


def test_the_published_points_bear_the_model_out() -> None:
    """Fitted on all it is a few percent off; from eight nodes it tells 64, from two it cannot and says so."""
    few, some, everything = study([], PredictionRequest("x")).published
    assert everything.error < 0.03
    chart = [one for one in some.points if one.name.startswith("aws-mosaicml-charts")]
    assert len(chart) == 12
    predicted = [one for one in chart if not one.fitted]
    assert {one.nodes for one in predicted} == {12, 16, 24, 32, 40, 48, 56, 64}
    assert max(abs(one.error) for one in predicted) < 0.10
    assert few.vague == ["fixed_s"]
    last = few.points[-1]
    assert (last.gpus, last.fitted) == (512, False)
    assert last.uncertainty is not None
    assert abs(last.error) > 0.2
    assert last.uncertainty > 0.5, "a prediction that far off has to say how little it knows"


def test_whole_micro_batches_explain_the_published_plateau() -> None:
    """From 256 to 384 GPUs each has two micro-batches to do, and from 448 on one."""
    rows = {row["nodes × GPUs"]: row for row in published_rows(study([], PredictionRequest("x")))}
    assert [rows[f"{nodes} × 8"]["micro-batches/GPU"] for nodes in (24, 32, 40, 48, 56, 64)] == list("322211")


def test_points_of_both_kinds_share_what_they_have_in_common(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "recipe": "emoji",
        "model.micro_batch_size": "2",
        "model.global_batch_size": "4",
    }
    points = scale_points(settings, [1, 2], "both", device="cpu", units=3, warmup=1)
    batches = [(p.job.recipe.trainer.devices, p.job.recipe.model.global_batch_size) for p in points]  # type: ignore[union-attr]
    assert batches == [(1, 2), (2, 4), (1, 4)]
    assert points[1].command.startswith("torchrun --nproc-per-node=2 -m calotype train emoji")
    with pytest.raises(
        RequestError, match=r"cannot be divided over 1, 3 devices; set model.global_batch_size=6"
    ):
        scale_points(settings, [1, 3], "strong")


def test_the_report_calls_predictions_that(tmp_path: Path) -> None:
    record = study(OURS, PredictionRequest("calotype bench scale sd2-base --out OUT"))
    (tmp_path / FILE).write_text(record.model_dump_json(), encoding="utf-8")
    report = compose(gather([tmp_path]))
    section = next(one for one in report.sections if one.name == "scaling-study")
    assert [figure.name for figure in section.figures] == ["scaling-study-1", "scaling-published"]
    labels = {row[1].text for figure in section.figures for row in figure.data.rows}
    assert {"measured, weak", "prediction, weak", "prediction, strong", "published"} <= labels
    assert all(label.startswith(("measured", "prediction", "published")) for label in labels)
    assert any("prediction, not measured" in table.caption for table in section.tables)
    assert "prediction, not measured" in as_markdown(report)
    write(report, tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "Scaling study" in page
    assert "linear scaling" in page


def test_the_command_works_on_published_points_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["bench", "scale", "--json"]) == 0
    record = ScalingRecord.model_validate(json.loads(capsys.readouterr().out))
    assert record.fit is None
    assert len(record.published) == 3
    assert run(["bench", "scale", "--devices=0"]) == 2
    assert run(["bench", "scale", "--between-gb-s=400"]) == 2
    assert "--gradient-gb" in capsys.readouterr().err


def test_records_from_elsewhere_are_studied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.jsonl"
    far = [*OURS, measurement(8, 64, nodes=2), measurement(8, 128, nodes=4)]
    file.write_text("".join(one.model_dump_json() + "\n" for one in far), encoding="utf-8")
    assert run(["bench", "scale", f"--with={file}", f"--out={tmp_path / 'out'}", "--nodes=1,64"]) == 0
    printed = capsys.readouterr().out
    assert "sd2-base on H100: prediction, not measured" in printed
    kept = ScalingRecord.model_validate_json((tmp_path / "out" / FILE).read_bytes())
    assert {one.nodes for one in kept.predictions} == {1, 64}
    assert {one.nodes for one in kept.measured} == {1, 2, 4}


def test_wires_are_measured_and_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes on this machine: one node, so its inside alone."""
    file = tmp_path / "links.json"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [warm_python(), *launcher, "-m", "calotype.bench.scaling.measure_links", str(file), "400000"],
        env=surroundings(),
        check=True,
        capture_output=True,
        timeout=LONGEST_S,
    )
    links = LinksRecord.model_validate_json(file.read_bytes())
    assert (links.nodes, links.gpus_per_node, links.between) == (1, 2, None)
    assert links.inside is not None
    assert links.inside.gb_s > 0
    given = parameters_of(links, gradient_gb=2.0)
    assert given["inside_s"] == pytest.approx(2.0 / links.inside.gb_s)
    assert run(["bench", "scale", f"--links={file}"]) == 2
    assert "SD 2 UNet take 3.46 GB" in capsys.readouterr().err
    assert run(["bench", "scale", f"--links={file}", "--gradient-gb=2", "--json"]) == 0


def test_a_link_is_what_its_ring_was_made_of() -> None:
    latency, speed, size = 1e-4, 25e9, 10**9
    small, large = ring_s(8, 0.0, latency), ring_s(8, size / speed, latency)
    link = link_of(8, size, small, large)
    assert link.latency_s == pytest.approx(latency)
    assert link.gb_s == pytest.approx(25.0)
