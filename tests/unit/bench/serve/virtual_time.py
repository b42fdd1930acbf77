"""An event loop whose clock moves only when everybody waits, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NoWaiting(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that will never happen")
        self.now += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.unhurried = _NoWaiting()
        super().__init__(self.unhurried)

    def time(self) -> float:
        return self.unhurried.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """What `work` answers, in no time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


def keep_busy(seconds: float) -> None:
    """Let time pass in which nobody else gets a turn."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    loop.unhurried.now += seconds


def now() -> float:
    return asyncio.get_running_loop().time()
