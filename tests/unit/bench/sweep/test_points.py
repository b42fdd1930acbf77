"""What people write as a sweep: every combination once, peers once, and all that is wrong at once."""

from __future__ import annotations

import pytest

from calotype.bench.sweep.axes import parse_axes
from calotype.bench.sweep.points import load_sweep, parse_sweep, points_of
from calotype.core.errors import NotFoundError, RequestError
from calotype.spec.bench_job import InferenceJob, TrainJob

PEERS = ("calotype", "diffusers-eager")


def test_axes_as_they_are_typed() -> None:
    words = ["batch=1,2", "size=512x512,768x768", "cfg=7.5", "model.compile=true,false", "preset=fast"]
    assert parse_axes(words) == {
        "batch": (1, 2),
        "size": ("512x512", "768x768"),
        "cfg": (7.5,),
        "model.compile": (True, False),
        "preset": ("fast",),
    }


@pytest.mark.parametrize("words", [["batch"], ["=1"], ["batch="], ["batch=1", "batch=2"], ["batch=1,1"]])
def test_axes_that_say_nothing_or_too_much(words: list[str]) -> None:
    with pytest.raises(RequestError, match="--sweep"):
        parse_axes(words)


def test_every_combination_is_a_point() -> None:
    sweep = {
        "kind": "inference",
        "settings": {"model": "random:sd15"},
        "axes": {"batch": [1, 4], "steps": [2]},
    }
    one, four = points_of(parse_sweep({**sweep, "points": [{"size": "64x128"}]}), device="cpu")
    assert (one.name, four.name) == ("size=64x128 batch=1", "size=64x128 batch=4")
    assert four.settings == {"size": "64x128", "batch": 4, "steps": 2}
    assert isinstance(four.job, InferenceJob)
    asked = four.job.request
    assert (asked.count, asked.width, asked.height, asked.steps) == (4, 64, 128, 2)
    assert (four.job.model, four.job.device) == ("random:sd15", "cpu")
    assert "batch=4" in four.command
    assert one.id != four.id
    assert one.id == points_of(parse_sweep({**sweep, "points": [{"size": "64x128"}]}), device="cpu")[0].id


def test_a_peer_stands_once_beside_all_presets() -> None:
    sweep = {"kind": "inference", "axes": {"preset": ["baseline", "fast"], "batch": [1, 2]}, "systems": PEERS}
    names = [point.name for point in points_of(parse_sweep(sweep))]
    assert len(names) == 6
    assert [name for name in names if "diffusers" in name] == [
        "batch=1 diffusers-eager",
        "batch=2 diffusers-eager",
    ]


def test_a_training_sweep_is_of_a_recipes_keys() -> None:
    axes = {"batch": [2], "model.compile": [True, False]}
    sweep = {"kind": "train", "settings": {"recipe": "bench-sd1"}, "axes": axes, "systems": PEERS}
    compiled, peer, eager = points_of(parse_sweep({**sweep, "units": 3}))
    assert (compiled.job.system, peer.job.system, eager.job.system) == (*PEERS, "calotype")
    assert isinstance(compiled.job, TrainJob)
    assert compiled.job.units == 3
    assert (compiled.job.recipe.model.micro_batch_size, compiled.job.recipe.model.compile) == (2, True)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"axes": {"batch": [1, 0], "steps": [0]}}, ["batch=1 steps=0: steps", "count", "steps"]),
        ({"axes": {"batches": [1]}}, ["batch"]),
        ({"axes": {"size": ["512"]}}, ["WIDTHxHEIGHT"]),
        ({"axes": {"precision": ["fp64"]}}, ["fp64"]),
        ({"systems": PEERS, "settings": {"sampler": "heun"}}, ["euler"]),
        (
            {"kind": "train", "settings": {"data.kind": "folder"}, "systems": PEERS},
            ["data.kind", "synthetic"],
        ),
        ({"kind": "train", "axes": {"trainer.nodes": [2]}}, ["trainer.nodes"]),
        ({"kind": "train", "axes": {"model.colour": [1]}}, ["model.colour"]),
        ({"kind": "train", "nonsense": 1}, ["nonsense"]),
        ({"axes": {"batch": list(range(1, 102)), "steps": list(range(1, 102))}}, ["10201", "10000"]),
    ],
)
def test_everything_that_is_wrong_is_said_at_once(changes: dict[str, object], what: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        points_of(parse_sweep({"kind": "inference", **changes}))
    assert all(word in str(caught.value) for word in what)


def test_a_preset_that_is_not_known_is_refused_before_anything_runs() -> None:
    for preset in ("faster", "passes:own_foreward", "passes:cuda_graph"):
        with pytest.raises(NotFoundError):
            points_of(parse_sweep({"kind": "inference", "axes": {"preset": [preset]}}))


@pytest.mark.parametrize(
    ("name", "varied"),
    [
        ("sdxl-batch", {"batch": [1, 2, 4, 8, 16, 32]}),
        ("sdxl-resolution", {"size": ["512x512", "768x768", "1280x768", "1024x1024"]}),
        ("sdxl-steps", {"steps": [1, 2, 4, 8, 16, 32, 64]}),
        ("sdxl-cfg", {"cfg": [7.0, 8.0, 11.0]}),
    ],
)
def test_the_tables_people_compare_with_come_along(name: str, varied: dict[str, list[object]]) -> None:
    points = points_of(load_sweep(name))
    [(axis, values)] = varied.items()
    assert [point.settings[axis] for point in points] == values
    assert all(isinstance(point.job, InferenceJob) and point.job.model == "random:sdxl" for point in points)


def test_the_training_sweep_that_comes_along_is_whole() -> None:
    assert len(points_of(load_sweep("sd1-train-batch"))) == 6


def test_what_is_wrong_with_a_point_and_its_peer_is_said_once() -> None:
    values = {"kind": "train", "settings": {"recipe": "emoji"}, "axes": {"data.kind": ["synthetic_latents"]}}
    with pytest.raises(RequestError) as raised:
        points_of(parse_sweep({**values, "systems": ["calotype", "diffusers-eager"]}))
    [problem] = raised.value.problems
    assert problem.field == "data.kind=synthetic_latents"
    assert "needs captions" in problem.message
