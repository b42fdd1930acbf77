"""An engine is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import DiskFullError
from calotype.core.progress import Silent
from calotype.engine.artifacts.build import BuiltArtifacts
from calotype.engine.artifacts.store import list_artifacts, locked, remove, remove_unfinished
from tests.unit.engine.artifacts.killed_build import REFUSED, SABOTEUR, cramped, killed
from tests.unit.engine.artifacts.stored_artifacts import (
    SMALL,
    WIDE,
    built,
    collected,
    keep,
    leftovers,
    target,
    verdicts,
)


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr
)
def test_a_failure_anywhere_leaves_nothing(error: BaseException) -> None:
    failures = 0
    while True:
        SABOTEUR.plan(failures, lambda: _raise(error))
        try:
            keep(target(SMALL))
        except (DiskFullError, KeyboardInterrupt):
            assert list_artifacts() == []
        assert leftovers() == []
        assert all(one.state == "ok" for one in verdicts())
        if SABOTEUR.at is not None:
            break
        remove(target(SMALL).key)
        failures += 1
    SABOTEUR.at = None
    # The lock, the folder, its files, the description and the name it gets in the end.
    assert failures >= 8
    assert [one.state for one in verdicts()] == ["ok"]


def test_a_kill_anywhere_leaves_no_engine_and_the_next_build_is_whole() -> None:
    wanted = target(SMALL)
    kills = 0
    while (status := killed(wanted, kills)) == -signal.SIGKILL:
        kills += 1
        assert list_artifacts() == []
    assert status == 0
    assert kills >= 8
    assert [one.state for one in verdicts()] == ["ok"]
    assert leftovers() == []


def test_a_disk_that_fills_up_in_the_middle_of_a_file() -> None:
    wanted = target(SMALL)
    for most_bytes in (0, 5, 50, 599, 700):
        assert cramped(wanted, most_bytes) == REFUSED
        assert list_artifacts() == []
        assert leftovers() == []


def test_what_a_killed_build_left_can_be_removed_but_not_a_running_ones() -> None:
    wanted = target(SMALL)
    assert killed(wanted, 10) == -signal.SIGKILL
    assert len(leftovers()) == 1
    with locked(wanted.key):
        remove_unfinished()
        assert len(leftovers()) == 1
    remove_unfinished()
    assert leftovers() == []


def test_a_damaged_engine_is_built_again(model: Path) -> None:
    first = built(model)
    (first.artefact.folder / "engine.json").write_text("{}")
    again = built(model)
    assert not again.already
    assert [one.state for one in verdicts()] == ["ok"]
    assert built(model).already


def test_a_build_that_fails_leaves_nothing(model: Path) -> None:
    def interrupted(*given: Any) -> None:
        collected(*given)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        built(model, collect=interrupted)
    assert list_artifacts() == []
    assert leftovers() == []
    assert not built(model).already


class _Waiting(Silent):
    """Lets the first build end as soon as the second waits for it."""

    def __init__(self, go_on: threading.Event) -> None:
        self._go_on = go_on

    def describe(self, label: str) -> None:
        if "waiting for another process" in label:
            self._go_on.set()


def test_of_two_builds_at_once_one_waits_and_finds_it_built(model: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    first: list[BuiltArtifacts] = []

    def slowly(*given: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        collected(*given)

    thread = threading.Thread(target=lambda: first.append(built(model, SMALL, WIDE, collect=slowly)))
    thread.start()
    assert begun.wait(30)
    second = built(model, WIDE, SMALL, progress=_Waiting(go_on))
    thread.join(60)
    assert second.already
    assert not first[0].already
    assert second.artefact.folder == first[0].artefact.folder
