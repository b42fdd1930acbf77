"""A run that is told to stop loses nothing; one that is killed loses what came after its last checkpoint."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.spec.recipe import Recipe
from tests.unit.train.children import run_alone
from tests.unit.train.runs import (
    arguments,
    assert_same,
    metrics,
    saved_state,
    settings,
    small_recipe,
    state_in,
    trained,
)

CHANGES: dict[str, Any] = {"trainer__max_steps": 5, "checkpoint__every_steps": 2}


@pytest.fixture(autouse=True, scope="module")
def as_many_threads_as_the_children() -> Iterator[None]:
    """Sums are split among threads, so another number of them rounds differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def straight(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run that nobody interrupted."""
    recipe = small_recipe(base, tmp_path_factory.mktemp("straight") / "run", **CHANGES)
    trained(recipe)
    return recipe


def struck(name: str, moment: str, base: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    recipe = folder / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    words = [
        name,
        moment,
        "train",
        str(recipe),
        *arguments(settings(base, folder / "run", **CHANGES)),
        "--device=cpu",
    ]
    return run_alone("tests.unit.train.struck_run", words, folder)


@pytest.mark.parametrize(
    ("name", "moment", "code", "kept"),
    [
        ("SIGTERM", "step:3", 0, 3),
        ("SIGKILL", "manifest:4", -signal.SIGKILL, 2),
    ],
)
def test_what_a_struck_run_kept_leads_to_the_same_end(
    straight: Recipe, base: Path, tmp_path: Path, name: str, moment: str, code: int, kept: int
) -> None:
    ended = struck(name, moment, base, tmp_path)
    assert ended.returncode == code, ended.stderr[-4000:]
    assert state_in(tmp_path / "run")["step"] == kept
    if code == 0:
        assert "stopped at step 3 (6 samples)" in ended.stdout
    again = small_recipe(base, tmp_path / "run", **CHANGES)
    assert trained(again).step == 5
    assert_same(saved_state(straight), saved_state(again))
    assert metrics(tmp_path / "run") == metrics(Path(straight.checkpoint.folder))
