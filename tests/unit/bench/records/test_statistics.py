"""One function says what is told of measured numbers: beside numpy's, and where it has nothing to say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calotype.spec.statistics import summarize

SENSIBLE = st.floats(min_value=1e-6, max_value=1e6)


@given(st.lists(SENSIBLE, min_size=1, max_size=50))
def test_all_of_it_is_what_numpy_says(values: list[float]) -> None:
    said = summarize(values)
    expected = np.percentile(values, [0, 5, 25, 50, 75, 95, 99, 100])
    found = [said.min, said.p5, said.p25, said.median, said.p75, said.p95, said.p99, said.max]
    assert found == pytest.approx(list(expected), rel=1e-12)
    assert said.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert said.stdev == pytest.approx(np.std(values, ddof=1) if len(values) > 1 else 0, rel=1e-9, abs=1e-9)
    assert said.count == len(values)


def test_known_numbers_in_any_order() -> None:
    said = summarize([4.0, 1.0, 3.0, 2.0])
    assert (said.median, said.p25, said.p75, said.mean) == (2.5, 1.75, 3.25, 2.5)
    assert said.stdev == pytest.approx(math.sqrt(5 / 3))
    assert (said.min, said.max) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("values", "why"), [([], "at least one"), ([1.0, math.nan], "nan"), ([math.inf], "inf")]
)
def test_what_is_no_measurement_is_refused(values: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        summarize(values)
