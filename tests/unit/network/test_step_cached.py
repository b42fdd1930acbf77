"""Which evaluations are whole, and that a cut one is the whole one where nothing deep has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.evaluation import Row
from calotype.engine.network.operations import Operations
from calotype.engine.network.own import OwnNetwork
from calotype.engine.network.step_cached import StepCached
from calotype.engine.network.unet import Unet
from calotype.engine.text import Conditioning
from calotype.models.model import Model
from tests.engines import latents_of, relative, small_engine
from tests.unit.network.test_unet import FAMILIES, Asked, far, model_of


@pytest.mark.parametrize("name", FAMILIES)
def test_with_its_own_deep_picture_a_cut_evaluation_is_the_whole_one(name: str) -> None:
    model = model_of(name)
    asked, unet = Asked(model), Unet(model.unet, Operations())
    shifts, prompts = unet.shift_rows(asked.timesteps, asked.added), unet.prompt_rows(asked.context)
    whole, deep = unet.with_deep(asked.sample, shifts, prompts, asked.mask)
    assert torch.equal(unet.shallow(asked.sample, shifts, prompts, asked.mask, deep), whole)
    assert far(unet.shallow(asked.sample, shifts, prompts, asked.mask, deep * 1.1), whole) > 1e-3


class Counted:
    """A network that notes which way it was evaluated."""

    def __init__(self, model: Model, every: int) -> None:
        self.ways: list[str] = []
        unet = Unet(model.unet, Operations())
        own = OwnNetwork(unet, unet, prompts_once=True, times_once=True)

        def whole(*inputs: Any) -> tuple[Tensor, Tensor]:
            self.ways.append("whole")
            return unet.with_deep(*inputs)

        def shallow(*inputs: Any) -> Tensor:
            self.ways.append("cut")
            return unet.shallow(*inputs)

        self.network = StepCached(own, whole, shallow, every=every)

    def ask(self, rows: Sequence[Row], times: int) -> list[str]:
        self.ways.clear()
        for _ in range(times):
            self.network.evaluate(torch.zeros(len(rows), 4, 8, 8), rows)
        return self.ways


class Sampling:
    """Somebody who asks."""


def row(model: Model) -> Row:
    width = model.architecture.unet["cross_attention_dim"]
    return Row(500.0, Conditioning(torch.ones(1, 4, width), None), None, Sampling())


def test_the_first_are_whole_and_then_one_in_every_so_many() -> None:
    model = model_of("emoji")
    one = row(model)
    assert Counted(model, 2).ask([one], 7) == ["whole", "whole", "cut", "whole", "cut", "whole", "cut"]
    assert Counted(model, 3).ask([one], 7) == ["whole", "whole", "cut", "cut", "whole", "cut", "cut"]


def test_somebody_new_in_the_batch_or_changed_weights_begin_anew() -> None:
    model = model_of("emoji")
    counted, one, other = Counted(model, 2), row(model), row(model)
    assert counted.ask([one], 3)[-1] == "cut"
    assert counted.ask([one, other], 3) == ["whole", "whole", "cut"]
    counted.network.forget()
    assert counted.ask([one, other], 1) == ["whole"]


def test_the_cached_preset_comes_near_the_picture_of_the_fast_one() -> None:
    knobs: dict[str, Any] = {"width": 32, "height": 32, "steps": 12, "cfg": 2.0}
    fast, cached = (latents_of(small_engine("emoji", preset=p), **knobs) for p in ("fast", "cached"))
    assert 1e-6 < relative(cached, fast) < 0.5


def test_a_second_picture_of_the_same_prompt_begins_anew() -> None:
    engine = small_engine("emoji", preset="cached")
    knobs: dict[str, Any] = {"width": 32, "height": 32, "steps": 3, "seed": 5}
    first, second = (latents_of(engine, **knobs) for _ in range(2))
    assert torch.equal(first, second)
