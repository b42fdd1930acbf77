"""Rows in eight bits, alone and behind another kernel, against torch in fp64, run by Triton's interpreter."""

from typing import Any

import pytest

from tests.unit.engine.kernels.subprocess_cases import interpret

KINDS = ("int8", "fp8")
CASES: dict[str, dict[str, Any]] = {
    "rows": {"of": "rows", "shape": [2, 5, 320], "dtype": "fp16"},
    "odd rows": {"of": "rows", "shape": [7, 99], "dtype": "bf16", "spread": 300.0},
    "rows with zeros": {"of": "rows", "shape": [6, 40], "dtype": "fp16", "zero_rows": [0, 4]},
    "norm": {"of": "layer_norm", "shape": [2, 5, 320], "dtype": "fp16"},
    "norm, odd width": {"of": "layer_norm", "shape": [5, 77], "dtype": "fp32"},
    "norm of a sum": {"of": "add_layer_norm", "shape": [3, 1280], "dtype": "fp16"},
    "norm with a known scale": {"of": "layer_norm", "shape": [3, 320], "dtype": "fp16", "scale": 0.004},
    "norm of a sum with one": {"of": "add_layer_norm", "shape": [3, 77], "dtype": "bf16", "scale": 0.02},
    "gate": {"of": "geglu", "shape": [2, 3, 2560], "dtype": "fp16"},
    "gate, odd width": {"of": "geglu", "shape": [5, 154], "dtype": "bf16"},
}
NAMES = [f"{name}, {kind}" for kind in KINDS for name in CASES]

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    cases = [{"operation": "quantised", "kind": kind, **case} for kind in KINDS for case in CASES.values()]
    return dict(zip(NAMES, interpret(cases), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_the_nearest_there_is(found: Found, name: str) -> None:
    assert found[name]["steps"] < 0.5 + 1e-3
    assert found[name]["dtype"]
    assert found[name]["shape"]


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_number_of_a_row_sets_its_scale_or_it_is_known(found: Found, name: str) -> None:
    assert found[name]["scale_error"] < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_alone(found: Found, name: str) -> None:
    assert found[name]["alone"]
