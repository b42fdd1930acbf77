"""Processes that keep an engine and are killed on the way, or may not write as much as it takes.

They are forked from a process that has the modules and nothing else, never from the one that runs the tests:
a copy of that could wait for ever for what its threads held. Knows nothing of any test.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from calotype.core.errors import CalotypeError
from calotype.core.paths import cache_dir
from calotype.engine.artifacts.cache_key import CacheKey
from calotype.engine.artifacts.store import engines_dir
from tests.unit.engine.artifacts.stored_artifacts import keep

REFUSED = 3
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_MOST_SECONDS = 120.0
_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


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


def killed(wanted: CacheKey, at: int) -> int:
    """The status of a process that kept an engine, or was killed at that change."""
    return _status(_keep_until, str(cache_dir()), wanted, at)


def cramped(wanted: CacheKey, most_bytes: int) -> int:
    """The status of a process that kept an engine with no file larger than that."""
    return _status(_keep_in_little_room, str(cache_dir()), wanted, most_bytes)


def _keep_until(cache: str, wanted: CacheKey, at: int) -> None:
    os.environ["CALOTYPE_CACHE"] = cache
    SABOTEUR.plan(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    keep(wanted)


def _keep_in_little_room(cache: str, wanted: CacheKey, most_bytes: int) -> None:
    os.environ["CALOTYPE_CACHE"] = cache
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    try:
        keep(wanted)
    except CalotypeError:
        sys.exit(REFUSED)


def _status(work: Callable[..., None], *given: object) -> int:
    process = _PROCESSES.Process(target=work, args=given)
    process.start()
    process.join(_MOST_SECONDS)
    if process.is_alive():
        process.kill()
    process.join(_MOST_SECONDS)
    assert process.exitcode is not None
    return process.exitcode
