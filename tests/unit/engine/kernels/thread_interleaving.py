"""Threads of which one runs at a time, and chance says which: what they do to each other can be repeated.

Each hands on its turn wherever it asks for something. Knows nothing of kernels.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


class StuckError(Exception):
    """Everyone waits for someone else."""


class Turns:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._changed = threading.Condition()
        self._waiting: dict[int, Callable[[], bool]] = {}
        self._turn: int | None = None
        self._failure: BaseException | None = None
        self._mine = threading.local()

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """All of them to their ends; the first failure of one ends all."""
        self._waiting = {index: lambda: True for index in range(len(functions))}
        threads = [
            threading.Thread(target=self._live, args=(index, function), daemon=True)
            for index, function in enumerate(functions)
        ]
        with self._changed:
            self._pass_on()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def until(self, holds: Callable[[], bool] = lambda: True) -> None:
        """Hands on the turn; comes back once it holds."""
        me: int = self._mine.index
        with self._changed:
            self._waiting[me] = holds
            self._pass_on()
            self._wait_for(me)

    def pick(self, things: list[Thing]) -> Thing:
        """Any of them, which it takes out."""
        return things.pop(self._chance.randrange(len(things)))

    @property
    def me(self) -> int:
        """Which of the functions is asking."""
        return self._mine.index

    def _live(self, index: int, function: Callable[[], None]) -> None:
        self._mine.index = index
        try:
            with self._changed:
                self._wait_for(index)
            function()
        except BaseException as error:
            self._failure = self._failure or error
        with self._changed:
            self._waiting.pop(index, None)
            self._pass_on()

    def _wait_for(self, index: int) -> None:
        self._changed.wait_for(lambda: self._turn == index or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    def _pass_on(self) -> None:
        ready = [index for index, holds in sorted(self._waiting.items()) if holds()]
        if self._waiting and not ready:
            self._failure = self._failure or StuckError(f"{len(self._waiting)} wait for each other")
        self._turn = self._chance.choice(ready) if ready else None
        self._changed.notify_all()
