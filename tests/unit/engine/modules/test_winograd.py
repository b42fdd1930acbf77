"""Winograd's convolutions are the usual ones, and about as exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from calotype.engine.modules import winograd
from calotype.engine.modules.winograd import (
    MAX_BYTES,
    MIN_TILES,
    Winograd,
    supports,
    transformed_bytes,
)


def made(channels: int = 24, out: int = 16, **options: Any) -> tuple[nn.Conv2d, Winograd]:
    torch.manual_seed(1)
    layer = nn.Conv2d(channels, out, 3, padding=1, **options).requires_grad_(False)
    convolution = Winograd()
    convolution.prepare(layer)
    return layer, convolution


def picture(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def exact(x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
    return conv2d(x.double(), layer.weight.double(), None if bias is None else bias.double(), padding=1)


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (23, 30), (1, 200)])
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_a_convolution(size: tuple[int, int], biased: bool) -> None:
    layer, convolution = made()
    x, bias = picture(2, 24, *size), layer.bias if biased else None
    found, wanted = convolution(x, layer, bias), exact(x, layer, bias)
    assert found.is_contiguous(memory_format=torch.channels_last)
    # Not the usual one in disguise: that would have the very same numbers.
    assert not torch.equal(found, conv2d(x, layer.weight, bias, padding=1))
    assert error(found, wanted) < 5e-6


@pytest.mark.parametrize("size", [(32, 32), (23, 30)])
def test_what_a_compiler_is_given_is_as_exact(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, convolution = made()
    x = picture(2, 24, *size)
    product = convolution(x, layer, layer.bias)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    sums = convolution(x, layer, layer.bias)
    assert sums.is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(sums, product)
    assert error(sums, exact(x, layer, layer.bias)) < 5e-6


def test_a_large_picture_is_convolved_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, convolution = made()
    x = picture(2, 24, 50, 30)
    whole, seen, band = convolution(x, layer, layer.bias), [], winograd._band

    def seen_band(tiles: Tensor, weight: Tensor) -> Tensor:
        seen.append(tiles.shape[3])
        return band(tiles, weight)

    monkeypatch.setattr(winograd, "_band", seen_band)
    monkeypatch.setattr(winograd, "BAND_BYTES", 3 * 36 * 2 * 8 * 24 * 4)
    found = convolution(x, layer, layer.bias)
    assert seen == [3, 3, 3, 3, 1]
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert error(found, whole) < 1e-6


def test_it_is_about_as_exact_as_the_usual_one() -> None:
    layer, convolution = made(160, 160)
    x = picture(2, 160, 16, 16)
    wanted = exact(x, layer, None)
    usual = conv2d(x, layer.weight, None, padding=1)
    assert error(convolution(x, layer, None), wanted) < 4 * max(error(usual, wanted), 5e-7)


def test_few_places_are_convolved_as_usual() -> None:
    layer, convolution = made()
    x = picture(1, 24, 4, 4 * (MIN_TILES - 1))
    assert torch.equal(convolution(x, layer, None), conv2d(x, layer.weight, None, padding=1))


def test_other_convolutions_are_left_alone() -> None:
    for layer in (
        made(stride=2)[0],
        made(dilation=2)[0],
        made(groups=2)[0],
        nn.Conv2d(8, 8, 1),
        nn.Conv2d(8, 8, 3, padding=1).half(),
        nn.Conv2d(640, 640, 3, padding=1, device="meta"),
    ):
        assert not supports(layer)
        assert not dict(layer.named_buffers())
    large = nn.Conv2d(320, 320, 3, padding=1, device="meta")
    assert supports(large)
    assert transformed_bytes(large) == 36 * 320 * 320 * 4 <= MAX_BYTES


def test_weights_that_changed_are_transformed_again_where_they_were() -> None:
    layer, convolution = made()
    x = picture(1, 24, 32, 32)
    place = layer.get_buffer("winograd").data_ptr()
    layer.weight.mul_(-2)
    assert error(convolution(x, layer, None), exact(x, layer, None)) > 1
    convolution.refresh()
    assert error(convolution(x, layer, None), exact(x, layer, None)) < 5e-6
    assert layer.get_buffer("winograd").data_ptr() == place


def test_transformed_weights_are_in_no_file() -> None:
    layer, _ = made()
    assert set(layer.state_dict()) == {"weight", "bias"}
