"""Sweeps and ablations as people type them, with real processes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calotype.bench.records.store import read
from calotype.bench.sweep import runner
from calotype.spec.records.measurement import FILE, Measurement
from tests.unit.bench.sweep.children import Children
from tests.unit.cli.conftest import Calotype
from tests.unit.train.children import surroundings
from tests.warm_python import warm_python

Narrow = Callable[[str], str]


@pytest.fixture
def stand_ins(children: Children, monkeypatch: pytest.MonkeyPatch) -> Children:
    """Points' processes are stood for by quick ones."""
    monkeypatch.setattr(runner, "child_command", children.command)
    return children


def test_a_point_that_does_not_fit_is_a_row_and_the_sweep_goes_on(
    calotype: Calotype, narrow: Narrow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in surroundings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", warm_python())
    written = tmp_path / "two.yaml"
    points = [{"size": "16384x16384", "batch": 1000}, {"size": "64x64", "batch": 1}]
    written.write_text(json.dumps({"kind": "inference", "points": points, "units": 1, "warmup": 0}))
    words = ["bench", "inference", written, "--model", narrow("emoji"), "--device", "cpu"]
    words += ["--out", tmp_path / "run", "--sweep", "steps=1"]
    done = calotype(*words)
    assert done.code == 0, done.err
    large, small = read(tmp_path / "run" / FILE).measurements
    assert (large.status, small.status) == ("oom", "ok")
    assert small.wall
    assert small.request
    assert (small.request["width"], small.request["steps"]) == (64, 1)
    assert "oom" in done.out
    told = json.loads(calotype(*words, "--json").out)
    assert [one["point"] for one in told] == ["size=16384x16384 batch=1000", "size=64x64 batch=1"]
    assert len(read(tmp_path / "run" / FILE).measurements) == 2


def test_named_sweeps_axes_and_peers_make_the_points(
    calotype: Calotype, stand_ins: Children, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = calotype(
        *("bench", "inference", "sdxl-cfg", "sdxl-batch", "--out", run, "--rounds", 1),
        *("--against", "diffusers-eager", "--sweep", "preset=baseline,fast"),
    )
    assert done.code == 0, done.err
    names = [name.rpartition("/")[0] for name in stand_ins.ran()]
    assert len(names) == (3 + 6) * 3
    assert "batch=32" in " ".join(names)
    assert "cfg=11" in " ".join(names)
    measurements: list[Measurement] = read(run / FILE).measurements
    assert {m.settings.get("preset") for m in measurements} == {"baseline", "fast", None}


def test_prompts_and_models_may_look_like_numbers(
    calotype: Calotype, stand_ins: Children, tmp_path: Path
) -> None:
    """A prompt of digits, one that says none, and a model whose name reads as a power of ten."""
    run = tmp_path / "run"
    words = ["bench", "inference", "--out", run, "--sweep", "prompt=2024,none", "model=1e5"]
    done = calotype(*words, "--device", "cpu")
    assert done.code == 0, done.err
    found = {one.point: one.settings for one in read(run / FILE).measurements}
    assert found == {f"prompt={text}": {"prompt": text, "model": "1e5"} for text in ("2024", "none")}


def test_one_command_measures_a_published_page_of_tables(
    calotype: Calotype, stand_ins: Children, tmp_path: Path
) -> None:
    """Batch, resolution, steps and guidance; what is in two tables is measured once, under both names."""
    tables = ("sdxl-batch", "sdxl-resolution", "sdxl-steps", "sdxl-cfg")
    done = calotype("bench", "inference", *tables, "--out", tmp_path / "run", "--rounds", 1, "--keep-loaded")
    assert done.code == 0, done.err
    assert len(stand_ins.ran()) == 6 + 4 + 7 + 3 - 2
    assert {"batch=4, size=512x512/1", "steps=64, cfg=8/1"} <= set(stand_ins.ran())
    assert stand_ins.processes() == 1
    both = [m for m in read(tmp_path / "run" / FILE).measurements if m.point == "steps=64, cfg=8"]
    assert [m.settings for m in both] == [{"steps": 64, "cfg": 8}]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["inference", "--sweep", "batch=0"], "count"),
        (["inference", "sdxl"], "sdxl-batch"),
        (["inference", "sd1-train-batch"], "bench train"),
        (["inference", "--against", "diffusers"], "diffusers-eager"),
        (["train", "--recipe", "sd16"], "sd15"),
        (["ablate"], "--recipe"),
        (["ablate", "--preset", "fast", "batch=1,2"], "several values"),
        (["ablate", "--preset", "fastest"], "fast"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    words: list[str], told: str, calotype: Calotype, tmp_path: Path
) -> None:
    done = calotype("bench", *words, "--out", tmp_path / "run")
    assert done.code in (2, 4)
    assert told in done.err
    assert not (tmp_path / "run").exists()


def test_an_ablation_says_what_each_switch_gives(
    calotype: Calotype, stand_ins: Children, tmp_path: Path
) -> None:
    for name in ("with ema", "only ema"):
        stand_ins.tell(name, "refuse")
    words = ["bench", "ablate", "--recipe", "bench-sd1", "--switches", "compile,ema", "--rounds", 1]
    done = calotype(*words, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert sorted(stand_ins.ran()) == [
        f"{name}/1" for name in ("all", "none", "only compile", "only ema", "with compile", "with ema")
    ]
    table = (tmp_path / "run" / "ablation.md").read_text()
    assert "| compile |" in table
    assert "| ema |" in table
    assert "with ema: oom" in table
    assert "with ema, only ema: oom: too large" in done.err
    assert "report/report.html" in done.out
    assert "only compile" in (tmp_path / "run" / "report" / "figures" / "ablation-time-1.svg").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "emoji", "--prompt", "a red apple, noto style", "--sweep", "steps=1 cfg=4.5", "seed=3"],
        ["--sweep", "negative_prompt=blurred\\, dark", "size=64x64", "--units", "2", "--warmup", "0"],
        ["--against", "diffusers-eager", "--sweep", "batch=2", "preset=fast", "--device", "cpu"],
    ],
)
def test_the_command_of_a_record_measures_the_same_point(
    words: list[str], calotype: Calotype, stand_ins: Children, tmp_path: Path
) -> None:
    done = calotype("bench", "inference", *words, "--out", tmp_path / "one")
    assert done.code == 0, done.err
    for measured in read(tmp_path / "one" / FILE).measurements:
        out = tmp_path / "again" / measured.id
        again = [str(out) if word == "OUT" else word for word in shlex.split(measured.command)]
        done = calotype(*again[1:])
        assert done.code == 0, done.err
        assert measured.id in [one.id for one in read(out / FILE).measurements]
