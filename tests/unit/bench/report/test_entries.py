"""Measurements among references: what `calotype bench compare` and the headline know of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calotype.bench.references.aggregate import aggregate_trials
from calotype.bench.references.from_measurement import entry_of_measurement
from calotype.bench.references.types import Entry
from calotype.bench.references.units import measures
from calotype.spec.published_results import Figure, Settings
from calotype.spec.records.measurement import Measurement, Series
from tests.unit.bench.report.samples import GIB, picture, stored, training
from tests.unit.cli.conftest import Calotype


def test_a_picture_says_its_settings_and_figures() -> None:
    measured = picture("one", 2.0, request={"count": 8}, gib=12, devices=2)
    found = entry_of_measurement(measured, "one")
    settings = found.settings
    assert (settings.work, settings.model, settings.gpu, settings.num_gpus) == (
        "inference",
        "sdxl",
        "NVIDIA H200",
        2,
    )
    assert (settings.batch, settings.width, settings.steps, settings.cfg) == (8, 512, 20, 8.0)
    assert settings.software == "calotype fast"
    assert measures(found) == {"samples/s/GPU": 2.0, "GiB": 12.0}


def test_evaluations_come_to_the_time_of_a_step() -> None:
    plain = picture("one", 2.0, request={"steps": 4})
    values = plain.model_dump() | {"series": {**plain.series, "evaluation": Series.of("s", [0.1] * 8)}}
    found = entry_of_measurement(Measurement.model_validate(values), "one")
    [step] = [figure for figure in found.figures if figure.what == "step_time"]
    assert step.value == pytest.approx(0.2)
    assert step.unit == "s/step"


def test_training_and_failures() -> None:
    good = entry_of_measurement(training("a", 200.0, gpus=2, gib=3), "a")
    assert (good.settings.model, good.settings.micro_batch, good.settings.global_batch) == ("sd2", 32, 64)
    assert measures(good)["samples/s/GPU"] == 100.0
    assert next(f.value for f in good.figures if f.what == "peak_memory") == 3 * GIB
    bad = entry_of_measurement(training("b", None), "b")
    assert (bad.outcome, bad.figures) == ("oom", ())


def test_compare_reads_a_run_and_takes_rounds_as_one(tmp_path: Path, calotype: Calotype) -> None:
    [file] = stored(tmp_path, *(picture("one", seconds, round=n) for n, seconds in ((1, 1.0), (2, 3.0))))
    outcome = calotype("bench", "compare", file, "--json")
    assert outcome.code == 0
    [found] = json.loads(outcome.out)
    assert found["record"] == f"{file}: one"
    assert found["measures"]["samples/s/GPU"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["references"]


def test_compare_tells_what_worked_when_it_was_tried_again_once(tmp_path: Path, calotype: Calotype) -> None:
    [file] = stored(tmp_path, picture("one"), picture("one", 1.0), picture("two"))
    outcome = calotype("bench", "compare", file, "--json")
    assert [(one["record"], one["outcome"]) for one in json.loads(outcome.out)] == [
        (f"{file}: one", "ok"),
        (f"{file}: two", "oom"),
    ]


def test_points_of_one_name_that_two_sweeps_left_in_one_folder_are_two(
    tmp_path: Path, calotype: Calotype
) -> None:
    """Each sweep leaves out of a point's name what it does not vary."""
    short, long = {"steps": 20}, {"steps": 50}
    [file] = stored(
        tmp_path,
        picture("batch=1", 1.0, request=short, round=1),
        picture("batch=1", 4.0, request=long, round=1),
        picture("batch=1", 3.0, request=short, round=2),
    )
    found = json.loads(calotype("bench", "compare", file, "--json").out)
    told = [(one["record"], one["settings"]["steps"], one["measures"]["samples/s/GPU"]) for one in found]
    assert told == [
        (f"{file}: batch=1 line 1", 20, pytest.approx((1 + 1 / 3) / 2)),
        (f"{file}: batch=1 line 2", 50, pytest.approx(1 / 4)),
    ]


def test_a_prompt_with_characters_that_end_lines_of_text_is_one_record(
    tmp_path: Path, calotype: Calotype
) -> None:
    [file] = stored(tmp_path, picture("one", 1.0, request={"prompt": "a hill\u2028and\x85a tree"}))
    outcome = calotype("bench", "compare", file, "--json")
    assert outcome.err == ""
    assert [one["record"] for one in json.loads(outcome.out)] == [f"{file}: one"]


def test_a_line_that_was_cut_inside_a_character_hides_no_other(tmp_path: Path, calotype: Calotype) -> None:
    [file] = stored(tmp_path, picture("one", 1.0), picture("two", 1.0, request={"prompt": "größer"}))
    text = file.read_bytes()
    file.write_bytes(text[: text.index("ö".encode()) + 1])
    outcome = calotype("bench", "compare", file, "--json")
    assert f"skipped {file}:2: is not a record" in outcome.err
    assert [one["record"] for one in json.loads(outcome.out)] == [f"{file}: one"]


def test_trials_have_the_mean_of_each_of_their_figures() -> None:
    def trial(*memory: float) -> Entry:
        figures = [Figure(what="peak_memory", value=value, unit="GiB") for value in memory]
        return Entry("id", "records", Settings(), tuple(figures), trial_of="one")

    [found] = aggregate_trials([trial(10, 20), trial(12, 24), trial(14)])
    assert [figure.value for figure in found.figures] == [12, 22]
    assert found.trials == 3
