"""The kernels of rows, and the one that repeats pixels, against torch, run by Triton's interpreter."""

from typing import Any

import pytest

from tests.unit.engine.kernels.subprocess_cases import interpret

CASES: dict[str, dict[str, Any]] = {
    "norm, 320": {"operation": "layer_norm", "shape": [2, 9, 320], "dtype": "fp16"},
    "norm, 1280": {"operation": "layer_norm", "shape": [3, 1280], "dtype": "bf16"},
    "norm, odd width": {"operation": "layer_norm", "shape": [2, 2, 3, 77], "dtype": "fp32"},
    "norm, one number": {"operation": "layer_norm", "shape": [3, 1], "dtype": "fp32"},
    "norm, sum": {"operation": "layer_norm", "shape": [5, 640], "dtype": "fp16", "residual": True},
    "norm, sum and bias": {
        "operation": "layer_norm",
        "shape": [2, 3, 99],
        "dtype": "bf16",
        "residual": True,
        "extra": True,
    },
    "gate, 1280": {"operation": "geglu", "shape": [2, 3, 2560], "dtype": "fp16"},
    "gate, odd width": {"operation": "geglu", "shape": [5, 154], "dtype": "bf16"},
    "gate, large numbers": {"operation": "geglu", "shape": [3, 600], "dtype": "fp32", "spread": 8.0},
    "gate, one row": {"operation": "geglu", "shape": [1, 2], "dtype": "fp32"},
    "sum": {"operation": "sum", "shape": [3, 7, 99], "dtype": "fp16"},
    "sum, one row": {"operation": "sum", "shape": [1, 5000], "dtype": "bf16"},
    "rescaled": {"operation": "rescaled", "shape": [19, 600], "dtype": "fp16", "bias": True},
    "product": {"operation": "product", "shape": [150, 160, 144], "dtype": "fp16", "bias": True},
    "product, few rows": {"operation": "product", "shape": [3, 96, 400], "dtype": "bf16", "bias": False},
    "rescaled, no bias": {"operation": "rescaled", "shape": [8, 512], "dtype": "bf16", "bias": False},
}
PIXELS: dict[str, dict[str, Any]] = {
    "320 channels": {"operation": "upsample", "shape": [2, 320, 3, 5], "dtype": "fp16"},
    "odd sizes": {"operation": "upsample", "shape": [3, 37, 7, 2], "dtype": "bf16"},
    "one pixel": {"operation": "upsample", "shape": [1, 3, 1, 1], "dtype": "fp32"},
}
OFF_CENTRE = {"operation": "layer_norm", "shape": [4, 320], "dtype": "fp32", "mean": 2000.0, "spread": 0.5}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    cases = {**CASES, **PIXELS, "off centre": OFF_CENTRE}
    return dict(zip(cases, interpret(list(cases.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_is_torchs_up_to_rounding(found: Found, name: str) -> None:
    assert found[name]["error"] < 1e-5
    assert found[name]["dtype"]


@pytest.mark.parametrize("name", [name for name in CASES if "norm, sum" in name])
def test_the_sum_is_handed_on(found: Found, name: str) -> None:
    assert found[name]["sum_error"] < 1e-6


def test_a_large_mean_costs_no_digits(found: Found) -> None:
    assert found["off centre"]["error"] < 2e-3


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_the_same_alone(found: Found, name: str) -> None:
    assert found[name]["alone"]


@pytest.mark.parametrize("name", PIXELS)
def test_every_pixel_stands_four_times(found: Found, name: str) -> None:
    assert found[name] == {"equal": True, "channels_last": True}
