"""Split weights: less on each rank, the same training, the same checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calotype.core.errors import RequestError
from calotype.train.benchmark import BenchmarkPlan, benchmark
from calotype.train.export import export
from tests.unit.train.children import run_on_two_ranks
from tests.unit.train.runs import (
    CPU,
    arguments,
    assert_same,
    furthest,
    metrics,
    saved_state,
    settings,
    small_recipe,
    state_in,
    trained,
)

# A large epsilon, so that AdamW does not enlarge the rounding of sums in another order; see test_processes.
CHANGES: dict[str, Any] = {
    "trainer__max_steps": 3,
    "optimizer__eps": 1e-3,
    "optimizer__learning_rate": 1e-3,
    "model__global_batch_size": 4,
    "checkpoint__every_steps": 2,
    "logging__sample_every_steps": 2,
    "logging__sample_prompts": ["a red apple"],
    "logging__sample_steps": 2,
}
# Over two micro-batches, between which gradients stay at home.
SPLIT: dict[str, Any] = {
    "trainer__strategy": "fsdp",
    "trainer__devices": 2,
    "model__micro_batch_size": 1,
}
TOLERANCE = 1e-6


def line(base: Path, folder: Path, **changes: Any) -> list[str]:
    empty = folder.parent / "empty.yaml"
    empty.write_text("{}", encoding="utf-8")
    return ["train", str(empty), *arguments(settings(base, folder, **{**CHANGES, **changes})), "--device=cpu"]


def without_the_end(source: Path, target: Path) -> Path:
    """A copy of a run as it was after its second step."""
    shutil.copytree(source, target)
    shutil.rmtree(target / "checkpoints" / "step-00000003")
    return target


@pytest.fixture(scope="module")
def alone(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one rank with the whole batch at once."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    trained(small_recipe(base, folder, model__micro_batch_size=4, **CHANGES))
    return folder


@pytest.fixture(scope="module")
def split(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same over two ranks; beside it the counts of what each held."""
    folder = tmp_path_factory.mktemp("split") / "run"
    counted = [str(folder.parent), *line(base, folder, **SPLIT)]
    run_on_two_ranks([counted], folder.parent, "tests.unit.train.counted_run")
    return folder


def assert_equal_but_for_rounding(one: Path, other: Path) -> None:
    mine, theirs = state_in(one), state_in(other)
    assert (mine["step"], mine["samples"]) == (theirs["step"], theirs["samples"]) == (3, 12)
    assert furthest(mine["parameters"], theirs["parameters"]) <= TOLERANCE
    names = sorted(mine["parameters"])
    averages = [dict(zip(names, state["ema"]["averages"], strict=True)) for state in (mine, theirs)]
    assert furthest(*averages) <= TOLERANCE
    for index, moments in mine["optimizer"]["state"].items():
        assert furthest(moments, theirs["optimizer"]["state"][index]) <= TOLERANCE
    for a, b in zip(metrics(one), metrics(other), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-5)


def test_two_ranks_with_split_weights_train_what_one_does(alone: Path, split: Path) -> None:
    assert_equal_but_for_rounding(split, alone)


def test_each_rank_holds_about_half_of_everything(split: Path) -> None:
    for rank in (0, 1):
        counts = json.loads((split.parent / f"counts-{rank}.json").read_text(encoding="utf-8"))
        everything = counts.pop("all")
        for count in counts.values():
            # Rows that do not divide go to the first.
            assert count == pytest.approx(everything / 2, rel=0.01)


def test_pictures_made_along_the_way_are_those_of_one_rank(alone: Path, split: Path) -> None:
    pictures = []
    for folder in (alone, split):
        with Image.open(folder / "samples" / "step-00000002.png") as picture:
            pictures.append(np.asarray(picture.convert("RGB"), dtype=np.int16))
    assert int(np.abs(pictures[0] - pictures[1]).max()) <= 1


def test_a_run_with_split_weights_resumes_to_the_bit(base: Path, split: Path, tmp_path: Path) -> None:
    again = without_the_end(split, tmp_path / "run")
    run_on_two_ranks([line(base, again, **SPLIT)], tmp_path)
    assert_same(state_in(split), state_in(again))
    assert metrics(split) == metrics(again)


def test_one_process_goes_on_from_split_weights(base: Path, alone: Path, split: Path, tmp_path: Path) -> None:
    again = without_the_end(split, tmp_path / "run")
    trained(small_recipe(base, again, model__micro_batch_size=4, **CHANGES))
    assert_equal_but_for_rounding(again, alone)


def test_two_ranks_split_what_one_process_saved(base: Path, alone: Path, tmp_path: Path) -> None:
    again = without_the_end(alone, tmp_path / "run")
    run_on_two_ranks([line(base, again, **SPLIT)], tmp_path)
    assert_equal_but_for_rounding(again, alone)


def test_what_split_weights_learned_is_exported(base: Path, alone: Path, split: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, split, **{**CHANGES, **SPLIT})
    assert export(recipe, tmp_path / "model", dtype="fp32") == 3
    exported = small_recipe(tmp_path / "model", tmp_path / "next", trainer__max_steps=1)
    trained(exported)
    averages = dict(
        zip(
            sorted(state_in(alone)["parameters"]),
            state_in(alone)["ema"]["averages"],
            strict=True,
        )
    )
    # One step of 1e-4 away from where it began.
    assert furthest(saved_state(exported)["parameters"], averages) <= 2e-4


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    # Weights that stay in fp32 under autocast, those of the norms, are rounded too when they travel.
    # Measured: 6e-8, 3.6e-3 and 6e-4 of the gradient's norm, less of the loss.
    [("fp32", 1e-6), ("bf16", 1e-2), ("fp16", 2e-3)],
)
def test_one_process_can_split_over_itself_in_every_precision(
    base: Path, tmp_path: Path, precision: str, tolerance: float
) -> None:
    said, kept = [], []
    for strategy in ("auto", "fsdp"):
        recipe = small_recipe(
            base,
            tmp_path / strategy,
            model__global_batch_size=4,
            model__precision=precision,
            model__gradient_checkpointing=True,
            trainer__strategy=strategy,
            trainer__max_steps=2,
        )
        trained(recipe)
        said.append(
            [line[name] for line in metrics(tmp_path / strategy) for name in ("loss", "gradient_norm")]
        )
        state = saved_state(recipe)
        kept.append((state["scaler"], {name: p.dtype for name, p in state["parameters"].items()}))
    assert said[0] == pytest.approx(said[1], rel=tolerance)
    assert kept[0] == kept[1]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_the_cost_of_sharing_can_be_measured_on_one_device(base: Path, tmp_path: Path, strategy: str) -> None:
    recipe = small_recipe(base, tmp_path, trainer__strategy=strategy)
    done = benchmark(recipe, BenchmarkPlan("none", steps=2, warmup_steps=1), device=CPU)
    plain = benchmark(
        small_recipe(base, tmp_path), BenchmarkPlan("none", steps=2, warmup_steps=1), device=CPU
    )
    assert (done.record.outcome, done.record.message) == ("OK", None)
    assert done.record.window is not None
    assert plain.record.window is not None
    assert done.record.window.losses == pytest.approx(plain.record.window.losses, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model__train": "lora"}, r"model\.train.*use ddp"),
        ({"model__train": "textual_inversion"}, r"model\.train.*use ddp"),
        ({"model__channels_last": True}, r"model\.channels_last"),
        ({"model__cuda_graphs": True}, r"model\.cuda_graphs"),
        ({"optimizer__name": "adamw8bit"}, r"optimizer\.name.*use adamw"),
        ({"trainer__overlap": False}, r"trainer\.overlap"),
    ],
)
def test_what_cannot_be_split_is_refused(
    base: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestError, match=rf"fsdp does not go with {said}"):
        small_recipe(base, tmp_path, trainer__strategy="fsdp", **changes)
