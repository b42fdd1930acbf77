"""Ranks and micro-batches share the work and change nothing of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.train.distributed.process_group import init_process_group
from tests.unit.train.children import run_alone, run_on_two_ranks
from tests.unit.train.runs import (
    arguments,
    furthest,
    metrics,
    saved_state,
    settings,
    small_loop,
    small_recipe,
    state_in,
    trained,
)

# Plain numbers in another order: the sums of a batch are rounded differently, and AdamW, which divides by the
# gradient's size, passes the difference on where a gradient is nearly zero. With a large epsilon it does not.
CHANGES: dict[str, Any] = {"trainer__max_steps": 3, "optimizer__eps": 1e-3, "optimizer__learning_rate": 1e-3}
# Measured: 1.2e-7, one bit of a weight near 1, while the weights move by 2.8e-3.
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def alone(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state after a run of one rank with micro-batches of four."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    trained(small_recipe(base, folder, model__micro_batch_size=4, model__global_batch_size=4, **CHANGES))
    return {**state_in(folder), "metrics": metrics(folder)}


@pytest.fixture(scope="module")
def two_ranks(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs by two ranks, one after the other."""
    folder = tmp_path_factory.mktemp("ranks")
    recipe = folder / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    lines = []
    # With overlap over two micro-batches, between which gradients must not travel.
    for name, micro, overlap in (("overlap", 1, True), ("after", 2, False)):
        chosen = settings(
            base,
            folder / name,
            model__micro_batch_size=micro,
            model__global_batch_size=4,
            trainer__devices=2,
            trainer__overlap=overlap,
            **CHANGES,
        )
        lines.append(["train", str(recipe), *arguments(chosen), "--device=cpu"])
    # Once as users start them.
    assert run_alone("calotype", lines[0], folder, python=sys.executable).returncode == 0
    run_on_two_ranks(lines[1:], folder)
    return folder


@pytest.mark.parametrize("name", ["overlap", "after"])
def test_two_ranks_train_what_one_does_with_twice_the_micro_batch(
    alone: dict[str, Any], two_ranks: Path, name: str
) -> None:
    folder = two_ranks / name
    assert_equal_but_for_rounding({**state_in(folder), "metrics": metrics(folder)}, alone)


def test_micro_batches_add_up(alone: dict[str, Any], base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path / "run", model__global_batch_size=4, **CHANGES)
    trained(recipe)
    assert_equal_but_for_rounding({**saved_state(recipe), "metrics": metrics(tmp_path / "run")}, alone)
    start = small_loop(recipe).state()["parameters"]
    assert furthest(start, alone["parameters"]) > 1000 * TOLERANCE


def assert_equal_but_for_rounding(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert furthest(one["parameters"], other["parameters"]) <= TOLERANCE
    names = sorted(one["parameters"])
    averages = [dict(zip(names, state["ema"]["averages"], strict=True)) for state in (one, other)]
    assert furthest(*averages) <= TOLERANCE
    for mine, theirs in zip(one["metrics"], other["metrics"], strict=True):
        assert mine["samples"] == theirs["samples"]
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
        # Before clipping: the rate of AdamW hides a factor, the norm does not.
        assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-5)


def test_another_number_of_processes_than_the_recipe_asks_for_is_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(base, tmp_path, trainer__devices=2, model__micro_batch_size=1)
    with (
        pytest.raises(RequestError, match=r"2 devices × 1 nodes, and only this process runs"),
        init_process_group(recipe),
    ):
        pass
    monkeypatch.setenv("WORLD_SIZE", "1")
    with (
        pytest.raises(RequestError, match=r"2 devices × 1 nodes, torchrun started 1"),
        init_process_group(recipe),
    ):
        pass


def test_a_plain_cuda_means_the_device_of_the_rank(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with init_process_group(small_recipe(base, tmp_path), torch.device("cuda")) as process:
        assert process.device == torch.device("cuda", 3)
    assert chosen == [torch.device("cuda", 3)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with (
        pytest.raises(RequestError, match=r"has 3 GPUs, none for .* number 3 .*; set it to 3 at most"),
        init_process_group(small_recipe(base, tmp_path), torch.device("cuda")),
    ):
        pass


@pytest.mark.parametrize("wanted", [False, True])
def test_convolutions_are_tuned_for_as_long_as_the_run_that_asked(
    base: Path, tmp_path: Path, wanted: bool
) -> None:
    recipe = small_recipe(base, tmp_path / "run", model__tune_convolutions=wanted)
    before = torch.backends.cudnn.benchmark
    with init_process_group(recipe, torch.device("cpu")):
        assert torch.backends.cudnn.benchmark is wanted
    assert torch.backends.cudnn.benchmark is before
