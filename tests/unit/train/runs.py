"""Training runs on shrunk models, small enough for a test. Knows nothing of any test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calotype.spec.recipe import Recipe
from calotype.train.builders import build_task, load_training_model, requirements_of
from calotype.train.checkpoint import CheckpointManager
from calotype.train.data.dataloader import build_dataloader
from calotype.train.distributed.process_group import Rank
from calotype.train.recipes import load_recipe
from calotype.train.train import Outcome, run_folder, train
from calotype.train.trainer import Trainer

CPU = torch.device("cpu")
ALONE = Rank(0, 1, 0, CPU)

# What depends on the clock, and so is no part of what a run computes.
_CLOCKED = ("samples_per_s", "memory_bytes", "mfu")


def settings(base: Path, folder: Path, **changes: Any) -> dict[str, str]:
    """The settings of a small run in dotted form; `changes` write `__` for the dot."""
    chosen = {
        "name": "small",
        "model.base": base,
        "model.weights": "pretrained",
        "model.micro_batch_size": 2,
        "model.global_batch_size": 2,
        "model.resolution": 64,
        "model.precision": "fp32",
        "data.kind": "synthetic_latents",
        "data.num_workers": 0,
        "trainer.max_steps": 4,
        "trainer.log_every_steps": 1,
        "checkpoint.folder": folder,
        "checkpoint.every_steps": 1000,
        "ema.decay": 0.9,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return {name: _spelled(value) for name, value in chosen.items()}


def small_recipe(base: Path, folder: Path, **changes: Any) -> Recipe:
    """`settings` as a recipe, by the way the command line takes."""
    empty = folder.parent / "empty.yaml"
    empty.parent.mkdir(parents=True, exist_ok=True)
    empty.write_text("{}", encoding="utf-8")
    return load_recipe(str(empty), arguments(settings(base, folder, **changes))).recipe


def arguments(chosen: Mapping[str, str]) -> list[str]:
    """Settings as overrides on a command line."""
    return [f"{name}={value}" for name, value in chosen.items()]


def small_loop(recipe: Recipe) -> Trainer:
    """A loop at its first step."""
    return Trainer(build_task(load_training_model(recipe, CPU), recipe), recipe, ALONE)


def small_feed(recipe: Recipe, loop: Trainer) -> Any:
    """The data the recipe names, from where the loop stands."""
    return build_dataloader(
        recipe.data,
        requirements_of(loop.subject.model, recipe),
        micro_batch_size=recipe.model.micro_batch_size,
        samples_seen=loop.samples,
    )


def trained(recipe: Recipe, *watchers: Any) -> Outcome:
    """A run in this process."""
    return train(recipe, device=CPU, extra_callbacks=watchers)


def saved_state(recipe: Recipe) -> dict[str, Any]:
    """What the newest checkpoint of a run holds."""
    return state_in(run_folder(recipe))


def state_in(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint in a run's folder holds."""
    with CheckpointManager(folder / "checkpoints", 3) as store:
        newest = store.newest()
        assert newest is not None
        state: dict[str, Any] = store.load(newest, 0)[0]
    return state


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics without what depends on the clock."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in _CLOCKED} for line in lines]


def assert_same(one: Any, other: Any, where: str = "state") -> None:
    """Equal to the bit, however deep."""
    if isinstance(one, Tensor):
        assert isinstance(other, Tensor), where
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{where}[{index}]")
    else:
        assert one == other, where


def furthest(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference of any number in two sets of tensors."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def _spelled(value: Any) -> str:
    if value is None or isinstance(value, bool | list | tuple):
        return json.dumps(value)
    return str(value)
