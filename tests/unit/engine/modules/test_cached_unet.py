"""Prompts of different lengths in one evaluation are answered as alone; what is made of them is made once."""

from __future__ import annotations

from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch
from torch import Tensor

from calotype.engine.engine import Engine
from calotype.engine.modules.cached_unet import CachedUNet
from calotype.engine.modules.ops import Operations
from calotype.engine.modules.unet import Unet
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import DiffusersUNet, Row
from tests.engines import begun, small_engine, to_the_end
from tests.unit.engine.modules.test_unet import far, model_of


@pytest.mark.parametrize(
    ("lengths", "masked"),
    [((7, 7), False), ((7, 28), False), ((7, 14, 28), False), ((14, 21), True), ((7, 14, 21), True)],
)
def test_a_mask_is_made_only_where_repeating_does_not_fit(lengths: tuple[int, ...], masked: bool) -> None:
    model = model_of("emoji")
    width = model.architecture.unet["cross_attention_dim"]
    torch.manual_seed(0)
    rows = [Row(500.0, Conditioning(torch.randn(1, length, width), None)) for length in lengths]
    sample = torch.randn(len(rows), 4, 8, 8)
    with torch.inference_mode():
        wanted = DiffusersUNet(model).evaluate(sample, rows)
        unet = Unet(model.unet, Operations())
        own = CachedUNet(unet, unet, prompts_once=True, times_once=True)
        assert (own.inputs(sample, rows)[3] is not None) == masked
        assert far(own.evaluate(sample, rows), wanted) < 2e-5


class Made:
    """What a network's function has made so far, as far as anybody still keeps it."""

    def __init__(self, unet: type[Unet], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        usual, self._all = getattr(unet, name), list[ReferenceType[Tensor]]()

        def noting(*given: Any) -> Tensor:
            found = usual(*given)
            self._all.append(ref(found))
            return found

        monkeypatch.setattr(unet, name, noting)

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def kept(self) -> int:
        return sum(each() is not None for each in self._all)


SIZE: dict[str, Any] = {"width": 16, "height": 16, "steps": 2}


def picture(engine: Engine, prompt: str) -> None:
    to_the_end(engine, begun(engine, {**SIZE, "prompt": prompt})[0])


@pytest.mark.parametrize("name", ["emoji", "sdxl"])
@pytest.mark.parametrize("preset", ["fast", "low-memory"])
def test_keys_and_values_are_kept_as_long_as_a_picture_is_under_way(
    name: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDXL's are 26 MB a prompt: a server that kept those of all it remembers would fill its card."""
    engine = small_engine(name, preset=preset)
    made = Made(Unet, "prompt_rows", monkeypatch)
    run, _ = begun(engine, {**SIZE, "prompt": "an apple"})
    engine.step([run])
    picture(engine, "a pear")
    engine.step([run])
    assert made.count == 3  # an apple, a pear, and nothing, which both are kept away from
    assert run.done
    del run
    for number in range(5):
        picture(engine, f"prompt {number}")
    assert made.kept == 0


def test_sdxl_finds_its_timesteps_made_at_the_next_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine("sdxl", preset="fast")
    made = Made(Unet, "shift_rows", monkeypatch)
    picture(engine, "an apple")
    assert made.count == made.kept == 4  # two steps, the prompt and nothing
    picture(engine, "an apple")
    assert made.count == 4
    picture(engine, "a pear")
    assert made.count == 6


def test_timesteps_take_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine("emoji", preset="fast")
    made = Made(Unet, "shift_rows", monkeypatch)
    picture(engine, "an apple")
    monkeypatch.setattr("calotype.engine.modules.cached_unet._MAX_SHIFT_BYTES", 1)
    engine.generate("an apple", **{**SIZE, "steps": 7})
    assert made.kept == 1
