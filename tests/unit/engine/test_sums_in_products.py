"""What layers add is added by their products, and biases are owed: the same tokens come out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from calotype.engine.passes.sums_in_products import Owing
from tests.engines import latents_of, relative, small_engine

SIZE: dict[str, Any] = {"width": 32, "height": 48, "steps": 4, "cfg": 5.0, "negative_prompt": "a pear"}
OTHERS = "own_forward+channels_last+joined_qkv+prompts_once+times_once+fused_norms"


@pytest.mark.parametrize("extra", ["", "+shared_guidance+fused_geglu", "+step_cache"])
@pytest.mark.parametrize("name", ["emoji", "sd15", "sdxl"])
def test_pictures_are_those_of_sums_that_norms_do(name: str, extra: str) -> None:
    usual, summed = (
        small_engine(name, preset=f"passes:{OTHERS}{p}{extra}") for p in ("", "+sums_in_products")
    )
    for engine in (usual, summed):
        _draw_biases(engine.model.unet)
    for count in (1, 3):
        assert (
            relative(latents_of(summed, **SIZE, count=count), latents_of(usual, **SIZE, count=count)) < 1e-5
        )


def test_biases_that_change_are_followed() -> None:
    usual, summed = (small_engine("sd15", preset=f"passes:{OTHERS}{p}") for p in ("", "+sums_in_products"))
    before = latents_of(summed, **SIZE)
    for engine in (usual, summed):
        _draw_biases(engine.model.unet)
        engine._networks.unet.forget()
    after = latents_of(summed, **SIZE)
    assert relative(after, latents_of(usual, **SIZE)) < 1e-5
    assert relative(after, before) > 1e-2


def test_what_is_owed_is_summed_once_and_in_single_precision() -> None:
    owing, biases = Owing(), [torch.full((4,), value).bfloat16() for value in (1.0, 2**-10)]
    first = owing.more(None, biases[0])
    both = owing.more(first, biases[1])
    assert both is not None
    assert both.tolist() == [1 + 2**-10] * 4
    assert owing.more(owing.more(None, biases[0]), biases[1]) is both
    assert owing.more(both, None) is both
    biases[0].fill_(2.0)
    owing.refresh()
    assert both.tolist() == [2 + 2**-10] * 4


def _draw_biases(unet: Any) -> None:
    """Ones that matter: those of random weights are zeros."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, numbers in unet.named_parameters():
            if name.endswith(("to_out.0.bias", "ff.net.2.bias")):
                nn.init.normal_(numbers, std=0.5, generator=generator)
