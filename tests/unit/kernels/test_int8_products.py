"""Products in eight bits by programs that walk over tiles, against fp64 and a program for each tile."""

from typing import Any

import pytest

from tests.unit.kernels.asked import interpret

SMALL = {"rows": 16, "columns": 32, "depth": 32, "stages": 2, "warps": 4}
# (rows, depth, width), with three programs for each that a plan puts on a multiprocessor
CASES: dict[str, dict[str, Any]] = {
    "more tiles than programs": {"shape": [64, 96, 128], "plan": SMALL},
    "fewer tiles than programs": {"shape": [16, 64, 32], "plan": SMALL},
    "one tile more than programs": {"shape": [64, 64, 32], "plan": SMALL},
    "rows that end inside a tile": {"shape": [45, 64, 96], "plan": SMALL},
    "columns that end inside a part": {"shape": [32, 64, 80], "plan": SMALL},
    "columns that end before a part": {"shape": [32, 64, 48], "plan": SMALL},
    "a depth that ends inside a step": {"shape": [48, 80, 64], "plan": SMALL},
    "one step": {"shape": [48, 32, 64], "plan": SMALL},
    "more rows of tiles than neighbours": {"shape": [16 * 19, 32, 64], "plan": SMALL},
    "whole tiles": {"shape": [64, 64, 64], "plan": {**SMALL, "parts": 1}},
    "quarters": {"shape": [40, 64, 64], "plan": {**SMALL, "columns": 64, "parts": 4}},
    "two programs on each": {"shape": [160, 64, 64], "plan": {**SMALL, "programs": 2}},
    "two loops": {"shape": [80, 96, 64], "plan": {**SMALL, "flat": False}},
    "as on a GPU": {
        "shape": [300, 160, 272],
        "plan": {"rows": 128, "columns": 256, "depth": 128, "stages": 4},
    },
}
CASES = {
    name: {"operation": "product", "dtype": "bf16" if index % 2 else "fp16", "bias": index % 3 != 0, **case}
    for index, (name, case) in enumerate(CASES.items())
}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    return dict(zip(CASES, interpret(list(CASES.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_is_the_exact_product_up_to_rounding(found: Found, name: str) -> None:
    assert found[name]["error"] < 1e-5
    assert found[name]["dtype"]


@pytest.mark.parametrize("name", CASES)
def test_no_plan_changes_a_bit(found: Found, name: str) -> None:
    assert found[name]["as_tiles"]
    assert found[name]["again"]
    assert found[name]["alone"]
