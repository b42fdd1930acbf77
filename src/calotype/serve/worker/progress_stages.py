"""What may take far longer than a step, told when it begins and when it is over. Knows nothing of what it is.

The server takes a worker that is silent for long for one that hangs, and waits longer in such a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from calotype.serve.ipc.messages import Stage


class Stages:
    """The stages of one worker. For one thread."""

    def __init__(self, tell: Callable[[Stage], None]) -> None:
        self._tell = tell
        self._within: list[str] = []
        """One stage may be part of another."""
        self._known: set[Hashable] = set()

    @contextmanager
    def slow(self, label: str) -> Iterator[None]:
        """Meanwhile something is done that may take long."""
        self._within.append(label)
        self._tell(Stage(label=label))
        try:
            yield
        finally:
            self._within.remove(label)
            self._tell(Stage(label=self._within[-1] if self._within else None))

    def first(self, what: str, model: str, shape: Hashable) -> AbstractContextManager[None]:
        """Slow when it is done for the first time: then something may be compiled, or chosen by trying."""
        if (what, model, shape) in self._known:
            return nullcontext()
        self._known.add((what, model, shape))
        return self.slow(f"the first {what} of {model} at {shape}")
