"""Progress reporting and cooperative cancellation of long work.

Work calls `Progress.advance`; the implementation decides what to draw. Work checks its CancelToken between
steps, so a step is never interrupted.
"""

from threading import Event
from typing import Protocol

from calotype.core.errors import CancelledError


class Progress(Protocol):
    """Receives the progress of long work."""

    def start(self, label: str, total: int) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def describe(self, label: str) -> None:
        """Replace the text next to the bar."""
        ...


class Silent:
    """Progress that is not shown."""

    def start(self, label: str, total: int) -> None:
        pass

    def advance(self, amount: int = 1) -> None:
        pass

    def describe(self, label: str) -> None:
        pass


class CancelToken:
    """Set from any thread or signal handler; checked between steps."""

    def __init__(self) -> None:
        self._event = Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raise if the work was cancelled."""
        if self.cancelled:
            raise CancelledError("cancelled between two steps")
