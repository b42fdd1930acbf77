"""`optimizer.one_pass` changes how an update is carried out, and nothing of what comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.engine.kernels.adamw import Updated
from calotype.train import fused_optimizer
from calotype.train.data.types import Batch
from calotype.train.trainer import Trainer
from tests.unit.train.runs import assert_same, saved_state, small_feed, small_loop, small_recipe, trained

ON: dict[str, Any] = {"optimizer__one_pass": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "summed": {"model__global_batch_size": 4},
    "channels last": {"model__channels_last": True},
    "nothing clipped": {"optimizer__gradient_clip": 0},
    "hardly a gradient left": {"optimizer__gradient_clip": 1e-3},
    "averages now and then": {"ema__every_steps": 2},
    "no averages": {"model__use_ema": False},
    "a small part is trained": {"model__train": "lora"},
}


def numbers_of(loop: Trainer) -> dict[str, Any]:
    state = loop.state()
    averages = state["ema"]["averages"] if state["ema"] else []
    moments = [{name: v.clone() for name, v in each.items()} for each in state["optimizer"]["state"].values()]
    parameters = {name: parameter.clone() for name, parameter in state["parameters"].items()}
    return {"parameters": parameters, "moments": moments, "averages": [each.clone() for each in averages]}


@pytest.mark.parametrize("name", SETTINGS)
def test_weights_moments_and_averages_are_those_of_three_passes(
    base: Path, tmp_path: Path, name: str
) -> None:
    found: list[Any] = []
    for changes in ({}, ON):
        recipe = small_recipe(base, tmp_path / "run", **SETTINGS[name], **changes)
        loop = small_loop(recipe)
        with small_feed(recipe, loop) as feed:
            losses = [loop.train_step(feed).loss for _ in range(4)]
        found.append((losses, numbers_of(loop)))
    # An AdamW divides by roots of squares: what is nearly nothing comes out as a whole step either way.
    torch.testing.assert_close(*found, rtol=1e-4, atol=2e-6)


def test_a_bad_batch_moves_nothing(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path / "run", trainer__on_non_finite="skip", **ON)
    loop = small_loop(recipe)

    def poisoned(batch: Batch) -> Batch:
        assert batch.latents is not None
        return replace(batch, latents=batch.latents * float("nan"))

    with small_feed(recipe, loop) as feed:
        batches = (poisoned(batch) if index == 1 else batch for index, batch in enumerate(feed))
        assert not loop.train_step(batches).skipped
        before = numbers_of(loop)
        assert loop.train_step(batches).skipped
        assert_same(numbers_of(loop), before)
        assert not loop.train_step(batches).skipped
    assert loop.ema is not None
    assert loop.ema.num_updates == 2
    assert {float(each["step"]) for each in loop.state()["optimizer"]["state"].values()} == {2.0}


def test_what_belongs_together_lies_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel counts places in memory, whatever they stand for."""
    weight = torch.nn.Parameter(torch.randn(8, 4, 3, 3).contiguous(memory_format=torch.channels_last))
    weight.grad = torch.randn(8, 4, 3, 3)
    optimizer = torch.optim.AdamW([weight], fused=True)
    # As a checkpoint of another layout brings them.
    moments = {name: torch.rand(8, 4, 3, 3) for name in ("exp_avg", "exp_avg_sq")}
    optimizer.state[weight].update(step=torch.tensor(1.0), **moments)
    told: list[Updated] = []
    monkeypatch.setattr(fused_optimizer, "update", lambda tensors, *_: told.append(tensors))
    fused_optimizer.FusedOptimizer(optimizer, None).step(2, torch.tensor(1.0), 1.0, torch.tensor(False))
    (found,) = told
    for tensors in (found.gradients, found.means, found.squares):
        assert tensors[0].stride() == weight.stride()
    assert torch.equal(found.gradients[0], weight.grad)
    assert torch.equal(optimizer.state[weight]["exp_avg"], moments["exp_avg"])
    assert found.means[0] is optimizer.state[weight]["exp_avg"]


@pytest.mark.parametrize("last", [{}, ON], ids=["in three passes", "in one"])
def test_a_run_goes_on_from_a_checkpoint_either_way(base: Path, tmp_path: Path, last: dict[str, Any]) -> None:
    shared: dict[str, Any] = {"model__channels_last": True}
    whole = small_recipe(base, tmp_path / "whole", **shared, **ON, trainer__max_steps=4)
    trained(whole)
    trained(small_recipe(base, tmp_path / "parts", **shared, **ON, trainer__max_steps=2))
    parts = small_recipe(base, tmp_path / "parts", **shared, **last, trainer__max_steps=4)
    trained(parts)
    if last:
        assert_same(saved_state(parts), saved_state(whole))
    else:
        one, other = (saved_state(recipe)["parameters"] for recipe in (parts, whole))
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    "setting",
    [
        "optimizer.name=adamw8bit",
        "optimizer.fused=false",
        "model.low_precision_weights=true",
        "model.precision=fp16",
        "trainer.strategy=fsdp",
        "ema.device=cpu",
    ],
)
def test_what_it_does_not_go_with_is_said(base: Path, tmp_path: Path, setting: str) -> None:
    name, value = setting.split("=")
    with pytest.raises(RequestError, match=rf"optimizer\.one_pass: it needs .*{setting}; leave it out"):
        small_recipe(base, tmp_path / "run", **ON, **{name.replace(".", "__"): value})
