"""Group normalisation's kernels against torch in fp64, run by Triton's interpreter."""

from typing import Any

import pytest

from tests.unit.engine.kernels.subprocess_cases import interpret

# Both ways to normalise: a group in one program, and chunks of positions where a group is too large for one.
# Every picture in chunks has three of them at least, and more than one program that puts them together.
CASES: dict[str, dict[str, Any]] = {
    "whole, half": {"shape": [3, 320, 4, 4], "groups": 32, "dtype": "fp16", "silu": True},
    "whole, odd sizes": {"shape": [2, 21, 5, 7], "groups": 3, "dtype": "fp32", "silu": False},
    "whole, shifted": {"shape": [2, 40, 3, 9], "groups": 4, "dtype": "bf16", "silu": True, "shift": True},
    "whole, one pixel": {"shape": [2, 64, 1, 1], "groups": 32, "dtype": "fp16", "silu": False},
    "whole, one group": {"shape": [2, 6, 11, 1], "groups": 1, "dtype": "fp32", "silu": False},
    "whole, pair": {"shape": [2, 40, 3, 5], "groups": 4, "dtype": "fp16", "silu": True, "first": 24},
    "whole, pair, odd seam": {
        "shape": [2, 30, 3, 5],
        "groups": 2,
        "dtype": "fp32",
        "silu": False,
        "first": 7,
    },
    "chunks, half": {"shape": [2, 20, 17, 17], "groups": 2, "dtype": "fp16", "silu": True},
    "chunks, blocks of groups": {"shape": [2, 240, 9, 9], "groups": 4, "dtype": "fp32", "silu": False},
    "chunks, shifted": {"shape": [2, 96, 11, 13], "groups": 6, "dtype": "bf16", "silu": True, "shift": True},
    "chunks, wide group": {"shape": [2, 192, 7, 11], "groups": 1, "dtype": "fp16", "silu": False},
    "chunks, narrow groups": {"shape": [1, 9, 23, 25], "groups": 3, "dtype": "fp32", "silu": True},
    "chunks, one row": {"shape": [2, 64, 1, 150], "groups": 2, "dtype": "fp16", "silu": False},
    "chunks, pair": {"shape": [2, 40, 13, 13], "groups": 2, "dtype": "fp16", "silu": True, "first": 24},
    "chunks, pair, odd seam": {
        "shape": [2, 66, 9, 9],
        "groups": 2,
        "dtype": "bf16",
        "silu": False,
        "first": 13,
    },
    "tiles": {
        "operation": "group_norm_of_tiles",
        "shape": [2, 40, 23, 25],
        "groups": 2,
        "dtype": "fp16",
        "silu": True,
        "first": 24,
    },
}
SUMS: dict[str, dict[str, Any]] = {
    "whole, sum": {"shape": [2, 40, 3, 9], "groups": 4, "dtype": "fp16", "silu": True, "addend": True},
    "whole, bias": {"shape": [2, 21, 5, 7], "groups": 3, "dtype": "bf16", "silu": False, "extra": True},
    "whole, pair with sum": {
        **CASES["whole, pair, odd seam"],
        "dtype": "bf16",
        "addend": True,
        "extra": True,
    },
    "chunks, sum": {**CASES["chunks, wide group"], "addend": True, "extra": True},
    "chunks, even sum": {**CASES["chunks, wide group"], "shape": [2, 192, 8, 16], "addend": True},
    "chunks, bias": {**CASES["chunks, wide group"], "dtype": "bf16", "extra": True},
    "chunks, pair with sum": {**CASES["chunks, pair, odd seam"], "addend": True, "extra": True},
    "tiles, pair with sum": {**CASES["tiles"], "addend": True, "extra": True},
}
# A mean this far from zero would cost a sum of squares all its digits.
OFF_CENTRE: dict[str, dict[str, Any]] = {
    "whole": {"shape": [2, 40, 6, 7], "groups": 4, "dtype": "fp32", "silu": False},
    "whole, shifted": {"shape": [2, 40, 6, 7], "groups": 4, "dtype": "fp32", "silu": False, "shift": True},
    "chunks": {"shape": [2, 96, 11, 13], "groups": 2, "dtype": "fp32", "silu": False},
    "chunks, shifted": {"shape": [2, 96, 11, 13], "groups": 2, "dtype": "fp32", "silu": False, "shift": True},
}
E4M3: dict[str, dict[str, Any]] = {
    f"{name}, by {factor}": {**(CASES | SUMS)[name], "factor": factor}
    for name, factor in (
        ("whole, half", 16.0),
        ("whole, shifted", 0.5),
        ("whole, pair with sum", 4.0),
        ("chunks, half", 16.0),
        ("chunks, shifted", 4.0),
        ("chunks, pair with sum", 1.0),
        ("tiles, pair with sum", 16.0),
        ("whole, half", 512.0),
        ("chunks, half", 512.0),
    )
}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    shared = {"operation": "group_norm"}
    cases = {name: {**shared, **case} for name, case in (CASES | SUMS | E4M3).items()}
    cases |= {
        f"off centre, {name}": {**shared, **case, "mean": 2000.0, "spread": 0.5}
        for name, case in OFF_CENTRE.items()
    }
    return dict(zip(cases, interpret(list(cases.values())), strict=True))


@pytest.mark.parametrize("name", CASES | SUMS)
def test_is_torchs_up_to_rounding(found: Found, name: str) -> None:
    assert found[name]["error"] < 1e-5
    assert found[name]["dtype"]
    assert found[name]["channels_last"]


@pytest.mark.parametrize("name", E4M3)
def test_every_number_in_e4m3_is_the_nearest_there_is(found: Found, name: str) -> None:
    assert found[name]["steps"] < 0.5 + 1e-3
    assert found[name]["dtype"]
    assert found[name]["channels_last"]
    assert (found[name]["cut_off"] > 0) == (name.endswith("512.0"))


@pytest.mark.parametrize("name", OFF_CENTRE)
def test_a_large_mean_costs_no_digits(found: Found, name: str) -> None:
    # Single precision itself resolves a mean of 2000 to 1e-4, and the spread is 0.5.
    assert found[f"off centre, {name}"]["error"] < 2e-3


@pytest.mark.parametrize("name", CASES | SUMS | E4M3)
def test_a_picture_is_the_same_alone(found: Found, name: str) -> None:
    assert found[name]["alone"]


IN_PARTS = [*SUMS, *(name for name, case in (CASES | E4M3).items() if "first" in case)]


@pytest.mark.parametrize("name", IN_PARTS)
def test_what_was_put_together_is_handed_on(found: Found, name: str) -> None:
    """To the bit what the sum's own kernel and a concatenation make of it."""
    assert found[name]["whole"]


@pytest.mark.parametrize("name", IN_PARTS)
def test_it_does_not_matter_who_put_it_together(found: Found, name: str) -> None:
    """Of parts it is to the bit what it is of the whole."""
    assert found[name]["as_if_whole"]
