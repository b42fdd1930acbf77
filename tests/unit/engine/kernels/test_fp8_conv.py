"""The 3×3 convolution in e4m3 against torch's of the same numbers, by Triton's interpreter and without it."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.fp8_conv import factor_for, fp8_conv, quantize_weight, to_e4m3
from tests.unit.engine.kernels.subprocess_cases import interpret

# Small ones: the interpreter takes its time for each program. What a GPU runs differs in these numbers alone.
TILE: dict[str, Any] = {"places": 16, "channels": 32, "depth": 32}
CASES: dict[str, dict[str, Any]] = {
    "one box": {"shape": [1, 32, 4, 4], "made": 32, "dtype": "bf16"},
    "boxes over the border": {"shape": [2, 64, 5, 7], "made": 32, "dtype": "bf16", "bias": True},
    "several pictures in a box": {"shape": [3, 32, 2, 2], "made": 32, "dtype": "fp16"},
    "a single row": {"shape": [2, 32, 1, 37], "made": 32, "dtype": "fp16", "bias": True},
    "channels left over": {"shape": [2, 80, 4, 6], "made": 48, "dtype": "bf16"},
    "as after a skip connection": {"shape": [2, 192, 4, 4], "made": 64, "dtype": "fp16"},
    "many rows of tiles": {"shape": [3, 32, 12, 16], "made": 80, "dtype": "bf16"},
}
WAYS: dict[str, dict[str, Any]] = {"alone": {}, "more channels": {"more": 16}}
NAMES = [f"{name}, {way}" for name in CASES for way in WAYS]
CHOSEN = {"shape": [2, 64, 8, 8], "made": 64, "dtype": "bf16"}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    cases = [{**case, "tile": {**TILE, **way}} for case in CASES.values() for way in WAYS.values()]
    asked = [{"operation": "convolution", **case} for case in (*cases, CHOSEN)]
    return dict(zip([*NAMES, "chosen"], interpret(asked), strict=True))


@pytest.mark.parametrize("name", [*NAMES, "chosen"])
def test_is_torchs_up_to_rounding(found: Found, name: str) -> None:
    assert found[name]["error"] < 1e-6
    assert found[name]["plain"] < 1e-6
    assert found[name]["dtype"]
    assert found[name]["channels_last"]


@pytest.mark.parametrize("name", [*NAMES, "chosen"])
def test_a_picture_is_the_same_alone(found: Found, name: str) -> None:
    assert found[name]["alone"]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_comes_near_the_convolution_that_was_meant() -> None:
    x, weight, bias = functional.silu(drawn(2, 32, 6, 5)), drawn(16, 32, 3, 3, seed=1), drawn(16, seed=2)
    # A channel far larger than the others must not cost the others their precision.
    weight[3] *= 1000
    found = fp8_conv(to_e4m3(x, 16.0), quantize_weight(weight, 16.0), bias, torch.float32)
    wanted = functional.conv2d(x, weight, bias, padding=1)
    spread = wanted.std((0, 2, 3), keepdim=True)
    assert 1e-3 < float(((found - wanted) / spread).square().mean().sqrt()) < 0.04


def test_a_factor_leaves_the_result_as_it_was() -> None:
    x, weight = drawn(1, 16, 4, 4), drawn(16, 16, 3, 3, seed=1)
    by_one, by_eight = (
        fp8_conv(to_e4m3(x, f), quantize_weight(weight, f), None, torch.float32) for f in (1.0, 8.0)
    )
    torch.testing.assert_close(by_one, by_eight, rtol=1e-2, atol=1e-2)


def test_what_is_too_large_is_cut_off() -> None:
    assert to_e4m3(torch.tensor([1000.0, -1e9, 3.0]), 2.0).float().tolist() == [448.0, -448.0, 6.0]


@pytest.mark.parametrize(
    ("largest", "factor"), [(448.0, 1.0), (449.0, 0.5), (224.0, 2.0), (1.0, 256.0), (7.0, 64.0)]
)
def test_the_factor_is_the_largest_that_cuts_nothing_off(largest: float, factor: float) -> None:
    assert factor_for(largest) == factor


@pytest.mark.parametrize(
    ("places", "sizes", "box"),
    [
        (128, (16, 128, 128), (1, 1, 128)),
        (128, (16, 64, 64), (1, 2, 64)),
        (256, (16, 32, 32), (1, 8, 32)),
        (128, (2, 8, 8), (2, 8, 8)),
        # 1152×896 pixels at SDXL's third level.
        (128, (1, 36, 28), (1, 4, 32)),
    ],
)
def test_boxes_leave_little_over(places: int, sizes: tuple[int, int, int], box: tuple[int, int, int]) -> None:
    from calotype.engine.kernels.fp8_conv_triton import box_of

    found = box_of(places, *sizes)
    assert prod(found) == places
    assert found == box
