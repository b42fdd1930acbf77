"""Layers joined into one: the same numbers, in memory that all who join them share."""

import pytest
import torch
from torch import nn

from calotype.engine.engine import Engine
from calotype.engine.modules.fused_linear import fuse_linears
from tests.unit.engine.modules.test_unet import model_of


def layers() -> list[nn.Linear]:
    torch.manual_seed(1)
    return [nn.Linear(8, width, bias=False) for width in (4, 2, 3)]


def test_who_joins_again_has_the_same_memory() -> None:
    """What was recorded for the first reads there: memory that was given back would be somebody else's."""
    three = layers()
    before = [layer.weight.clone() for layer in three]
    first, _ = fuse_linears(three)
    again, _ = fuse_linears(three)
    assert again.data_ptr() == first.data_ptr() == three[0].weight.data_ptr()
    assert torch.equal(again, torch.cat(before))
    with torch.no_grad():
        three[1].weight += 1
    assert torch.equal(first, again)
    assert torch.equal(first[4:6], before[1] + 1)


@pytest.mark.parametrize("others", [(1, 0, 2), (0, 2), (0, 1, 1)])
def test_layers_that_were_joined_otherwise_are_joined_anew(others: tuple[int, ...]) -> None:
    three = layers()
    first, _ = fuse_linears(three)
    kept = first.clone()
    wanted = torch.cat([three[place].weight for place in others])
    again, _ = fuse_linears([three[place] for place in others])
    assert torch.equal(again, wanted)
    assert again.data_ptr() != first.data_ptr()
    assert torch.equal(first, kept)


def test_two_engines_of_a_model_read_the_same_weights() -> None:
    model = model_of("sd15")
    own = next(each for name, each in model.unet.named_modules() if name.endswith("attn1"))
    engines, places = [], []
    for preset in ("fast", "cached"):
        engines.append(Engine(model, preset=preset))
        places.append((own.joined_qkv.data_ptr(), own.to_k.weight.data_ptr()))
    assert places[0] == places[1]
