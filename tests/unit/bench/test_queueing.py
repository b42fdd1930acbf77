"""benchmarks/queueing.py: the arithmetic of a deployment."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
WITHIN = 1.7


@pytest.fixture
def queueing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("queueing")


def test_requests_far_apart_take_as_long_as_alone(queueing: Any) -> None:
    server = queueing.Server(fixed_s=0.001, each_s=0.004, steps=20, beside_s=0.07)
    arrivals = [0.0, 1.0, 2.0]
    for policy in (queueing.as_deployed, queueing.at_most(4), queueing.in_time_first(WITHIN)):
        assert server.took(arrivals, policy) == pytest.approx([0.17] * 3)
    assert server.ideally_took(arrivals) == pytest.approx([0.17] * 3)


def test_two_at_once_share_or_take_turns(queueing: Any) -> None:
    server = queueing.Server(fixed_s=0.001, each_s=0.004, steps=20, beside_s=0.0)
    assert server.took([0.0, 0.0], queueing.at_most(2)) == pytest.approx([0.18, 0.18])
    assert server.took([0.0, 0.0], queueing.at_most(1)) == pytest.approx([0.1, 0.2])


def test_giving_up_the_late_keeps_more_in_time(queueing: Any) -> None:
    server = queueing.Server(fixed_s=0.00157, each_s=0.00378, steps=20, beside_s=0.069)
    arrivals = queueing.arrivals(0.5 * server.saturated)[:4000]
    ways = {"deployed": queueing.as_deployed, "given up": queueing.in_time_first(WITHIN)}
    in_time = {
        name: sum(each <= WITHIN * server.alone_s for each in server.took(arrivals, policy)) / len(arrivals)
        for name, policy in ways.items()
    }
    assert in_time["deployed"] < in_time["given up"] < 0.95
