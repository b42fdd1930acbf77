"""Which evaluations are whole, and that a cut one is the whole one where nothing deep has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.modules.cached_unet import CachedUNet
from calotype.engine.modules.deepcache import DeepCacheUNet
from calotype.engine.modules.ops import Operations
from calotype.engine.modules.unet import Unet
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import Row
from calotype.models.model import Model
from tests.engines import latents_of, relative, small_engine
from tests.unit.engine.modules.test_unet import FAMILIES, Asked, far, model_of


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

    def __init__(self, model: Model) -> None:
        self.ways: list[str] = []
        self.has_room = True
        unet = Unet(model.unet, Operations())
        own = CachedUNet(unet, unet, prompts_once=True, times_once=True)

        def whole(*inputs: Any) -> tuple[Tensor, Tensor]:
            if not self.has_room:
                raise torch.OutOfMemoryError("no room")
            self.ways.append("whole")
            return unet.with_deep(*inputs)

        def shallow(*inputs: Any) -> Tensor:
            self.ways.append("cut")
            return unet.shallow(*inputs)

        self.network = DeepCacheUNet(own, whole, shallow)

    def ask(self, rows: Sequence[Row], timesteps: Iterable[float]) -> str:
        """What was whole, as W, and what was cut, as c, at one timestep after the other."""
        self.ways.clear()
        for timestep in timesteps:
            told = [replace(row, timestep=timestep) for row in rows]
            self.network.evaluate(torch.zeros(len(rows), 4, 8, 8), told)
        return "".join("W" if way == "whole" else "c" for way in self.ways)


def uniform(steps: int) -> list[float]:
    return [999 - place * 999 / (steps - 1) for place in range(steps)]


class Sampling:
    """Somebody who asks."""


def row(model: Model) -> Row:
    width = model.architecture.unet["cross_attention_dim"]
    return Row(500.0, Conditioning(torch.ones(1, 4, width), None), None, Sampling())


def test_as_many_are_cut_as_the_noise_allows() -> None:
    model = model_of("emoji")
    counted, one = Counted(model), [row(model)]
    assert counted.ask(one, uniform(20)) == "WcWcWcWcWcWcWccWccWc"
    counted.network.invalidate()
    assert counted.ask(one, uniform(50)) == "Wccc" * 12 + "Wc"
    counted.network.invalidate()
    assert counted.ask(one, uniform(10)) == "W" * 10


def test_steps_that_hardly_move_are_not_all_cut() -> None:
    """As at the end of Karras's schedule."""
    model = model_of("emoji")
    assert Counted(model).ask([row(model)], [40, 30, 20, 12, 6, 2]) == "WcccWc"


def test_an_evaluation_at_the_same_level_again_is_cut_and_one_far_above_is_not() -> None:
    """Samplers of second order look twice, and some go back."""
    model = model_of("emoji")
    assert Counted(model).ask([row(model)], [500, 420, 420, 700]) == "WccW"


def test_somebody_new_in_the_batch_or_changed_weights_begin_anew() -> None:
    model = model_of("emoji")
    counted, one, other = Counted(model), row(model), row(model)
    assert counted.ask([one], [500, 450]) == "Wc"
    assert counted.ask([one, other], [450, 400]) == "Wc"
    counted.network.invalidate()
    assert counted.ask([one, other], [400]) == "W"


def test_a_whole_evaluation_that_found_no_room_is_whole_when_it_is_tried_again() -> None:
    model = model_of("emoji")
    counted, one = Counted(model), [row(model)]
    assert counted.ask(one, [700]) == "W"
    counted.has_room = False
    with pytest.raises(torch.OutOfMemoryError):
        counted.ask(one, [500])
    counted.has_room = True
    assert counted.ask(one, [500]) == "W"


def test_one_row_that_has_gone_far_makes_all_whole() -> None:
    model = model_of("emoji")
    counted, one, other = Counted(model), row(model), row(model)
    assert counted.ask([one, other], [500]) == "W"
    sample = torch.zeros(2, 4, 8, 8)
    counted.network.evaluate(sample, [replace(one, timestep=480), replace(other, timestep=300)])
    assert counted.ways == ["whole", "whole"]


def test_the_cached_preset_comes_near_the_picture_of_the_fast_one() -> None:
    knobs: dict[str, Any] = {"width": 32, "height": 32, "steps": 12, "cfg": 2.0}
    fast, cached = (latents_of(small_engine("emoji", preset=p), **knobs) for p in ("fast", "cached"))
    assert 1e-6 < relative(cached, fast) < 0.5


def test_a_second_picture_of_the_same_prompt_begins_anew() -> None:
    engine = small_engine("emoji", preset="cached")
    knobs: dict[str, Any] = {"width": 32, "height": 32, "steps": 3, "seed": 5}
    first, second = (latents_of(engine, **knobs) for _ in range(2))
    assert torch.equal(first, second)
