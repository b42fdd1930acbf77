"""Sizes changed as torch and Pillow do it, and along the sphere as a slow loop does it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from calotype.workflow.nodes.impl.resize import bislerp, resized


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "area", "bicubic"])
def test_usual_methods_are_torchs(method: str) -> None:
    samples = _random(2, 4, 6, 10)
    assert torch.equal(resized(samples, 15, 9, method), interpolate(samples, size=(9, 15), mode=method))


@pytest.mark.parametrize(
    ("width", "height", "kept"),
    [
        (10, 10, (slice(0, 10), slice(5, 15))),
        (40, 10, (slice(2, 8), slice(0, 20))),
        (20, 10, (slice(0, 10), slice(0, 20))),
    ],
)
def test_centre_crop_cuts_what_would_be_stretched(width: int, height: int, kept: tuple[slice, slice]) -> None:
    samples = _random(1, 3, 10, 20)
    expected = interpolate(samples[..., kept[0], kept[1]], size=(height, width), mode="bilinear")
    assert torch.equal(resized(samples, width, height, "bilinear", "center"), expected)


def test_lanczos_is_pillows() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    samples = torch.from_numpy(pixels.astype(np.float32) / 255).movedim(-1, 0)[None]
    made = (resized(samples, 33, 7, "lanczos")[0].movedim(0, -1) * 255).round().to(torch.uint8)
    expected = Image.fromarray(pixels).resize((33, 7), Image.Resampling.LANCZOS)
    assert np.array_equal(made.numpy(), np.asarray(expected))


def _slow_bislerp(samples: Tensor, width: int, height: int) -> Tensor:
    """One vector at a time in float64, first along rows and then along columns."""
    rows = [
        [_column_at(samples[:, :, y].double(), x, width) for x in range(width)]
        for y in range(samples.shape[2])
    ]
    wide = torch.stack([torch.stack(row, -1) for row in rows], -2)
    columns = [[_column_at(wide[:, :, :, x], y, height) for y in range(height)] for x in range(width)]
    return torch.stack([torch.stack(column, -1) for column in columns], -1)


def _column_at(line: Tensor, index: int, length: int) -> Tensor:
    old = line.shape[-1]
    place = min(max((index + 0.5) * old / length - 0.5, 0.0), old - 1.0)
    left = math.floor(place)
    right = min(left + 1, old - 1)
    return torch.stack([_slow_slerp(row[:, left], row[:, right], place - left) for row in line])


def _slow_slerp(one: Tensor, other: Tensor, share: float) -> Tensor:
    lengths = float(one.norm()), float(other.norm())
    a = one / lengths[0] if lengths[0] else one * 0
    b = other / lengths[1] if lengths[1] else other * 0
    cosine = float(a @ b)
    if cosine > 1 - 1e-5:
        return one
    if cosine < 1e-5 - 1:
        return one * (1 - share) + other * share
    angle = math.acos(cosine)
    turned = (math.sin((1 - share) * angle) * a + math.sin(share * angle) * b) / math.sin(angle)
    return turned * (lengths[0] * (1 - share) + lengths[1] * share)


@pytest.mark.parametrize(("width", "height"), [(9, 7), (3, 3), (5, 4), (8, 12)])
def test_bislerp_is_what_the_slow_one_makes(width: int, height: int) -> None:
    samples = _random(2, 4, 4, 5)
    samples[0, :, 1, 2] = 0
    samples[0, :, 2, 3] = -samples[0, :, 2, 2] * 2
    samples[1, :, 0, 1] = samples[1, :, 0, 0] * 3
    made = bislerp(samples, width, height)
    torch.testing.assert_close(made.double(), _slow_bislerp(samples, width, height), atol=2e-5, rtol=1e-4)
    assert torch.isfinite(made).all()


def test_bislerp_keeps_the_length_of_noise_where_bilinear_loses_it() -> None:
    samples = _random(1, 4, 16, 16)
    assert bislerp(samples, 24, 24).std() > 1.15 * resized(samples, 24, 24, "bilinear").std()
