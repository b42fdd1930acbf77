"""The driver that is rendered for Ray: how a job of several nodes ends. Starts no cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from ray.exceptions import RayError

from calotype.launch.ray import driver

PATIENCE_S = 30.0


class Remote:
    """A method of an actor, as the driver calls it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.remote = method

    def options(self, **_: object) -> Remote:
        return self


class Node:
    """An actor whose command ends as it is told to."""

    def __init__(self, *said: str | int | Exception, waits_for: Event | None = None) -> None:
        self.told, self._said, self._waits_for = Event(), said, waits_for or Event()
        self.run, self.stop = Remote(self._run), Remote(self.told.set)
        if waits_for is None:
            self._waits_for.set()

    def _run(self, _rdzv_endpoint: str, _task: str) -> Iterator[str | int]:
        assert self._waits_for.wait(PATIENCE_S)
        for each in self._said:
            if isinstance(each, Exception):
                raise each
            yield each


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("ray.get", lambda said: said)
    monkeypatch.setattr(driver, "stopped", Event())
    monkeypatch.setattr(driver, "POLL_S", 0.01)
    others = set(threading.enumerate())
    yield
    # Ray's own `get`, asked by a reader that is late, would start a cluster in this process.
    for reader in set(threading.enumerate()) - others:
        reader.join(PATIENCE_S)


def until_told(*said: str | int | Exception) -> Node:
    node = Node(*said, waits_for=Event())
    node._waits_for = node.told
    return node


def test_lines_of_all_nodes_are_printed_and_all_have_to_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert driver.wait_for_nodes([Node("one", "two", 0), Node("three", 0)], "here:1") == 0
    assert sorted(capsys.readouterr().out.split()) == ["one", "three", "two"]


def test_one_that_fails_ends_the_others_and_its_code_is_the_jobs() -> None:
    other = until_told(143)
    assert driver.wait_for_nodes([Node("fails", 3), other], "here:1") == 3
    assert other.told.is_set()


def test_a_lost_node_is_no_failure_even_if_the_others_fail_of_it_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    late = until_told(RayError("the node died"))
    assert driver.wait_for_nodes([Node("lost the others", 8), late], "here:1") == driver.LOST
    assert "node 1 is lost: the node died" in capsys.readouterr().out


def test_who_stops_it_wins_over_what_that_breaks() -> None:
    driver.stopped.set()
    nodes = [until_told("saved", 1), until_told(RayError("gone"))]
    assert driver.wait_for_nodes(nodes, "here:1") == driver.STOPPED


def test_the_time_limit_leaves_time_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TIME_LIMIT_S", 60)
    monkeypatch.setattr(driver, "GRACE_S", 60)
    node = until_told("saved", 0)
    assert driver.wait_for_nodes([node], "here:1") == driver.TIMED_OUT


def test_what_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "TIMEOUT_S", 0)
    for_good = Event()
    driver.stopped.set()
    assert driver.wait_for_nodes([Node(0, waits_for=for_good)], "here:1") == driver.STOPPED
    assert "is killed" in capsys.readouterr().out
    for_good.set()
