"""What TensorBoard shows of a run, read by its own reader."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import NotFoundError
from calotype.train.checkpoint import CheckpointManager
from tests.unit.train.runs import metrics, small_recipe, trained


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by name."""
    reading = import_module("tensorboard.backend.event_processing.event_accumulator")
    shown: Any = reading.EventAccumulator(str(folder / "tensorboard"))
    shown.Reload()
    return {name: [(e.step, e.value) for e in shown.Scalars(name)] for name in shown.Tags()["scalars"]}


def test_curves_hold_the_metrics_once_even_of_steps_done_twice(base: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "logging__tensorboard": True,
        "trainer__log_every_steps": 2,
        "checkpoint__every_steps": 2,
    }
    folder = tmp_path / "run"
    trained(small_recipe(base, folder, trainer__max_steps=4, **changes))
    with CheckpointManager(folder / "checkpoints", 3) as store:
        newest = store.newest()
        assert newest is not None
        assert newest.name == "step-00000004"
        newest.rename(tmp_path / "lost")
    trained(small_recipe(base, folder, trainer__max_steps=6, **changes))
    shown = curves(folder)
    assert {"loss", "gradient_norm", "learning_rate", "samples_per_s", "memory_bytes"} == shown.keys()
    for name in ("loss", "gradient_norm"):
        # TensorBoard keeps single precision.
        assert [value for _, value in shown[name]] == pytest.approx([line[name] for line in metrics(folder)])
    assert [step for step, _ in shown["loss"]] == [2, 4, 6]


def test_without_the_package_the_way_to_it_is_told(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        NotFoundError, match=r"tensorboard=true needs tensorboard: pip install 'calotype\[train"
    ):
        trained(small_recipe(base, tmp_path / "run", logging__tensorboard=True))
