"""Prompts of different lengths in one evaluation: each row is answered as it is alone."""

from __future__ import annotations

import pytest
import torch

from calotype.engine.evaluation import PlainNetwork, Row
from calotype.engine.network.operations import Operations
from calotype.engine.network.own import OwnNetwork
from calotype.engine.network.unet import Unet
from calotype.engine.text import Conditioning
from tests.unit.network.test_unet import far, model_of


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
        wanted = PlainNetwork(model).evaluate(sample, rows)
        unet = Unet(model.unet, Operations())
        own = OwnNetwork(unet, unet, prompts_once=True, times_once=True)
        assert (own.inputs(sample, rows)[3] is not None) == masked
        assert far(own.evaluate(sample, rows), wanted) < 2e-5
