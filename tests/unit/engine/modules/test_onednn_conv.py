"""Convolutions of what is compiled, as a compiler is shown them, are usual ones; so are packed weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from calotype.engine.compile.region import Region
from calotype.engine.modules.onednn_conv import OneDnnConvs, pack_weights


class Around(nn.Module):
    """A walk through a module, with whatever weights it is called."""

    def __init__(self, walk: Callable[[Tensor], Tensor], module: nn.Module) -> None:
        super().__init__()
        self.module, self._walk = module, walk

    def forward(self, x: Tensor) -> Tensor:
        return self._walk(x)


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


def picture(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def prepared(module: nn.Module) -> OneDnnConvs:
    convolution = OneDnnConvs()
    convolution.prepare(module.requires_grad_(False))
    return convolution


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("size", [(32, 32), (23, 30), (1, 200), (8, 8)])
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_a_convolution(size: tuple[int, int], biased: bool) -> None:
    torch.manual_seed(4)
    layer, x = nn.Conv2d(24, 16, 3, padding=1), picture(2, 24, *size)
    convolution, bias = prepared(layer), layer.bias if biased else None
    found = convolution(x, layer, bias)
    wanted = conv2d(x.double(), layer.weight.double(), None if bias is None else bias.double(), padding=1)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert error(found, wanted) < 5e-6


def test_what_is_not_compiled_is_done_as_usual() -> None:
    layer, x = nn.Conv2d(24, 16, 3, padding=1), picture(2, 24, 32, 32)
    convolution = prepared(layer)
    assert torch.equal(convolution(x, layer, None), conv2d(x, layer.weight, padding=1))


@pytest.mark.usefixtures("compiling")
def test_half_precision_is_done_as_usual() -> None:
    layer, x = nn.Conv2d(24, 16, 3, padding=1).bfloat16(), picture(2, 24, 32, 32).bfloat16()
    assert torch.equal(prepared(layer)(x, layer, None), conv2d(x, layer.weight, padding=1))


@pytest.mark.usefixtures("compiling")
def test_packed_weights_serve_as_well_and_follow() -> None:
    """They are the region's weights in their order, made of what they are at that time."""
    torch.manual_seed(5)
    layers = (
        nn.Conv2d(24, 16, 3, padding=1),
        nn.Conv2d(16, 16, 1),
        nn.Conv2d(16, 8, 3, padding=1, stride=2),
    )
    module, x = nn.Sequential(*layers), picture(2, 24, 32, 32)
    convolution = prepared(module)

    def walk(x: Tensor) -> Tensor:
        for layer in layers:
            x = convolution(x, layer, layer.bias)
        return x

    region = Region("all", module, walk)
    for _ in range(2):
        handed = dict(zip(region.weights(), pack_weights(region), strict=True))
        assert [name for name, each in handed.items() if each.is_mkldnn] == [
            "0.weight",
            "2.weight",
            "0.wide_winograd",
        ]
        named = {f"module.{name}": each for name, each in handed.items()}
        found = torch.func.functional_call(Around(walk, module), named, (x,))
        assert error(found, module(x)) < 5e-6
        layers[0].weight.mul_(-2)
        convolution.refresh()
