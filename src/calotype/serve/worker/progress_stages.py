"""Reports stages that may take far longer than a step, when they begin and end.

The server regards a worker without a heartbeat as hung, and waits longer during such a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from calotype.serve.ipc.messages import Stage


class Stages:
    """The stages of one worker. Not thread-safe."""

    def __init__(self, send: Callable[[Stage], None]) -> None:
        self._send = send
        self._active: list[str] = []
        """The active stages, innermost last."""
        self._known: set[Hashable] = set()

    @contextmanager
    def slow(self, label: str) -> Iterator[None]:
        """Report a stage that may take long."""
        self._active.append(label)
        self._send(Stage(label=label))
        try:
            yield
        finally:
            self._active.remove(label)
            self._send(Stage(label=self._active[-1] if self._active else None))

    def first(self, what: str, model: str, shape: Hashable) -> AbstractContextManager[None]:
        """Report a slow stage the first time only, when compilation or autotuning may happen."""
        if (what, model, shape) in self._known:
            return nullcontext()
        self._known.add((what, model, shape))
        return self.slow(f"the first {what} of {model} at {shape}")
