"""Stretches of time with known answers, and against time counted moment by moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calotype.bench.profile.intervals import Interval, common, gaps, shared_out, union

MOMENTS = 60


def _some(most: int) -> st.SearchStrategy[list[Interval]]:
    lengths = st.tuples(st.integers(0, MOMENTS - 1), st.integers(0, 20))
    return st.lists(lengths.map(lambda one: Interval(one[0], one[0] + one[1])), max_size=most)


def _covered(intervals: list[Interval]) -> set[int]:
    return {moment for one in intervals for moment in range(int(one.start), int(one.end))}


def test_streams_that_overlap() -> None:
    # Two kernels side by side from 2 to 4, a third that ends when another starts.
    first, second, third = Interval(0, 4), Interval(2, 6), Interval(8, 9)
    assert union([third, second, first]) == [(0, 6), (8, 9)]
    assert gaps([first, second, third], Interval(0, 10)) == [(6, 8), (9, 10)]
    assert shared_out([("a", first), ("b", second), ("a", third)]) == {"a": 2 + 1 + 1, "b": 1 + 2}


def test_a_kernel_inside_another_of_its_own_name() -> None:
    assert shared_out(
        [("a", Interval(0, 10)), ("a", Interval(2, 4)), ("b", Interval(2, 4))]
    ) == pytest.approx({"a": 8 + 4 / 3, "b": 2 / 3})


def test_a_window_without_anything_is_one_gap() -> None:
    assert gaps([], Interval(3, 7)) == [(3, 7)]
    assert gaps([Interval(0, 9)], Interval(3, 7)) == []


@given(_some(8), _some(8))
def test_as_if_counted_moment_by_moment(some: list[Interval], others: list[Interval]) -> None:
    window = Interval(0, MOMENTS + 20)
    assert sum(one.length for one in union(some)) == len(_covered(some))
    assert _covered(gaps(some, window)) == set(range(MOMENTS + 20)) - _covered(some)
    assert common(some, others) == len(_covered(some) & _covered(others))
    parts = shared_out([("some", one) for one in some] + [("others", one) for one in others])
    assert sum(parts.values()) == pytest.approx(len(_covered(some) | _covered(others)))
    counted = sum(
        sum(one.start <= moment < one.end for one in some)
        / sum(one.start <= moment < one.end for one in [*some, *others])
        for moment in _covered(some)
    )
    assert parts.get("some", 0) == pytest.approx(counted)
