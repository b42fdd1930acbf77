"""Ranks that die and come back, or come back in another number, end where undisturbed ones do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import RequestError
from calotype.train.distributed.process_group import apply_elastic_world_size
from tests.unit.train.children import run_on_two_ranks
from tests.unit.train.runs import (
    arguments,
    assert_same,
    furthest,
    metrics,
    settings,
    small_recipe,
    state_in,
    trained,
)

# A large epsilon, so that AdamW does not enlarge the rounding of sums in another order; see test_processes.
CHANGES: dict[str, Any] = {
    "trainer__max_steps": 5,
    "trainer__devices": 2,
    "optimizer__eps": 1e-3,
    "optimizer__learning_rate": 1e-3,
    "model__micro_batch_size": 1,
    "model__global_batch_size": 4,
    # Written before the next step begins, so that it is known which ones there are.
    "checkpoint__every_steps": 2,
    "checkpoint__asynchronous": False,
}
TOLERANCE = 1e-6


def line(base: Path, folder: Path) -> list[str]:
    empty = folder.parent / "empty.yaml"
    empty.write_text("{}", encoding="utf-8")
    return ["train", str(empty), *arguments(settings(base, folder, **CHANGES)), "--device=cpu"]


@pytest.fixture(scope="module")
def straight(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks that nobody disturbed."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    run_on_two_ranks([line(base, folder)], folder.parent)
    return folder


def test_a_killed_rank_comes_back_and_changes_nothing(straight: Path, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # First the second rank, while the first waits for it; then the first, which has the folder's lock and a
    # checkpoint half made.
    struck = ["SIGKILL", "update:3,manifest:4", *line(base, folder)]
    run_on_two_ranks([struck], tmp_path, "tests.unit.train.struck_run", num_restarts=2)
    assert_same(state_in(straight), state_in(folder))
    assert metrics(straight) == metrics(folder)
    assert [each["step"] for each in metrics(folder)] == [1, 2, 3, 4, 5]
    left = {path.name for path in (folder / "checkpoints").iterdir()}
    assert left == {".lock", "step-00000002", "step-00000004", "step-00000005"}


def test_one_rank_goes_on_where_two_were(straight: Path, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    for step in (4, 5):
        shutil.rmtree(folder / "checkpoints" / f"step-{step:08d}")
    # Still asking for two devices; torchrun, which is not there, started one.
    outcome = trained(small_recipe(base, folder, trainer__elastic=True, **CHANGES))
    assert (outcome.step, outcome.samples) == (5, 20)
    mine, theirs = state_in(folder), state_in(straight)
    assert furthest(mine["parameters"], theirs["parameters"]) <= TOLERANCE
    for one, other in zip(metrics(folder), metrics(straight), strict=True):
        assert one["samples"] == other["samples"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("world_size", "local", "devices", "nodes", "accumulation"),
    [
        ("4", "4", 4, 1, 3),
        ("4", "2", 2, 2, 3),
        ("3", "2", 3, 1, 4),
        ("2", "2", 2, 1, 6),
        ("12", "6", 6, 2, 1),
    ],
)
def test_an_elastic_recipe_takes_the_processes_there_are(
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    world_size: str,
    local: str,
    devices: int,
    nodes: int,
    accumulation: int,
) -> None:
    recipe = small_recipe(base, tmp_path, model__global_batch_size=24, trainer__elastic=True)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    started = apply_elastic_world_size(recipe)
    assert (started.trainer.devices, started.trainer.nodes) == (devices, nodes)
    assert started.accumulation == accumulation
    assert started.model == recipe.model


def test_processes_that_cannot_share_the_batch_are_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(base, tmp_path, model__global_batch_size=12, trainer__elastic=True)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RequestError, match=r"started 4 .* 6 micro-batches of 2 .*; start one of 1, 2, 3, 6"):
        apply_elastic_world_size(recipe)
