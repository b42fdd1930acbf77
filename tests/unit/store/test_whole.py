"""An engine is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import CalotypeError, DoesNotFitError
from calotype.core.progress import Silent
from calotype.engine.store.artefact import artefacts, engines_dir, locked, remove, remove_abandoned
from calotype.engine.store.build import Built
from tests.unit.store.kept import SMALL, WIDE, built, collected, keep, leftovers, target, verdicts

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Saboteur:
    """Something that happens at one of the changes to the engines' folder: makes, writes and renames."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.act: Callable[[], None] = lambda: None
        self.seen = 0

    def plan(self, at: int, act: Callable[[], None]) -> None:
        self.at, self.act, self.seen = at, act, 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.at is None or event not in ("open", "os.mkdir", "os.rename", "os.chmod"):
            return
        if event == "open" and not args[2] & _WRITES:
            return
        if isinstance(args[0], int) or not os.fsdecode(args[0]).startswith(str(engines_dir())):
            return
        self.seen += 1
        if self.seen > self.at:
            self.at = None
            self.act()


SABOTEUR = Saboteur()
sys.addaudithook(SABOTEUR)


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
        except (DoesNotFitError, KeyboardInterrupt):
            assert artefacts() == []
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


def in_a_child(work: Callable[[], object]) -> int:
    """The status of a process that is this one's copy and does the work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except CalotypeError:
            os._exit(3)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_a_kill_anywhere_leaves_no_engine_and_the_next_build_is_whole() -> None:
    kills = 0
    while True:

        def killed(at: int = kills) -> None:
            SABOTEUR.plan(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            keep(target(SMALL))

        if os.WIFEXITED(in_a_child(killed)):
            break
        kills += 1
        assert artefacts() == []
    assert kills >= 8
    assert [one.state for one in verdicts()] == ["ok"]
    assert leftovers() == []


def test_a_disk_that_fills_up_in_the_middle_of_a_file() -> None:
    for most_bytes in (0, 5, 50, 599, 700):

        def cramped(limit: int = most_bytes) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            keep(target(SMALL))

        assert os.waitstatus_to_exitcode(in_a_child(cramped)) == 3
        assert artefacts() == []
        assert leftovers() == []


def test_what_a_killed_build_left_can_be_removed_but_not_a_running_ones() -> None:
    def killed(at: int = 10) -> None:
        SABOTEUR.plan(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        keep(target(SMALL))

    assert os.WIFSIGNALED(in_a_child(killed))
    assert len(leftovers()) == 1
    with locked(target(SMALL).key):
        remove_abandoned()
        assert len(leftovers()) == 1
    remove_abandoned()
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
    assert artefacts() == []
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
    first: list[Built] = []

    def slowly(*given: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        collected(*given)

    thread = threading.Thread(target=lambda: first.append(built(model, SMALL, WIDE, collect=slowly)))
    thread.start()
    assert begun.wait(30)
    second = built(model, WIDE, SMALL, progress=_Waiting(go_on))
    thread.join()
    assert second.already
    assert not first[0].already
    assert second.artefact.folder == first[0].artefact.folder
