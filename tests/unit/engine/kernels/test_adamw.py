"""One pass over the weights does what torch's clipping, AdamW and an average do one after the other."""

from typing import Any

import pytest

from tests.unit.engine.kernels.subprocess_cases import interpret

# The second list has a tensor of two stretches, and sizes that no four numbers fit into evenly.
CASES: dict[str, dict[str, Any]] = {
    "in fours": {"shapes": [[64], [8, 4, 3, 3], [40, 100]], "limit": 1.0, "share": 0.1},
    "of odd sizes": {"shapes": [[1], [7, 3], [17001], [5, 3, 1, 1]], "limit": 1.0, "share": 0.1},
    "without averages": {"shapes": [[64], [7, 3]], "limit": 1.0},
    "nothing to clip": {"shapes": [[64]], "limit": 1e6, "share": 0.5},
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, float]]:
    cases = [{"operation": "adamw", **case} for case in CASES.values()]
    return dict(zip(CASES, interpret(cases), strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("of", ["weights", "means", "squares", "averages"])
def test_is_torchs_up_to_rounding(found: dict[str, dict[str, float]], name: str, of: str) -> None:
    assert found[name][of] < 1e-6
