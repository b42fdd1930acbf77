"""How long work reports itself and how it is stopped. Knows nothing of what is being done.

Work calls `Progress.advance`; whoever watches decides what to draw. Cancelling is asking: the work looks at
the token between steps, so nothing is ever torn in the middle.
"""

from threading import Event
from typing import Protocol

from calotype.core.errors import CancelledError


class Progress(Protocol):
    """Receives news of long work."""

    def start(self, label: str, total: int) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def describe(self, label: str) -> None:
        """Say something new beside the bar."""
        ...


class Silent:
    """Progress nobody watches."""

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
        """Raise if someone asked to stop."""
        if self.cancelled:
            raise CancelledError("cancelled between two steps")
