"""Detects workers that hang, by how long a worker has been silent and how long it may be.

A busy worker sends a message after every step and announces longer stages, such as loading or compiling a
model, before it begins them. After a long silence that ended, a worker may be silent for up to TIMEOUT_FACTOR
times as long again: a large batch on a slow device is no hang.
"""

from __future__ import annotations

from collections.abc import Callable

from calotype.serve.ipc.messages import FromWorker, Hello, Stage
from calotype.serve.scheduler.settings import DeploymentSettings

TIMEOUT_FACTOR = 2
"""The multiple of the longest silence at work so far that is not a hang either."""
Monotonic = Callable[[], float]


class Heartbeat:
    """The heartbeat of one worker."""

    def __init__(self, settings: DeploymentSettings, monotonic: Monotonic) -> None:
        self._settings, self._monotonic = settings, monotonic
        self.start()

    def start(self) -> None:
        """Reset for a new worker."""
        self._stage: str | None = "its start"
        self._longest_s = 0.0
        self.expect()

    def expect(self) -> None:
        """Count silence from now on."""
        self._since = self._monotonic()
        self._suspect = False

    def beat(self, message: FromWorker, *, at_work: bool) -> None:
        if at_work:
            self._longest_s = max(self._longest_s, self._monotonic() - self._since)
        self.expect()
        if isinstance(message, Stage):
            self._stage = message.label
        elif isinstance(message, Hello):
            self._stage = None

    def hang(self) -> str | None:
        """The problem if it has been silent for too long at two checks in a row, else None.

        At the first check this process may itself have been suspended, with messages of the worker unread.
        """
        silent_s = self._monotonic() - self._since
        option, limit_s = (
            ("--hang-limit", self._settings.hang_s)
            if self._stage is None
            else ("--load-limit", self._settings.load_s)
        )
        limit_s = max(limit_s, TIMEOUT_FACTOR * self._longest_s)
        if silent_s <= limit_s:
            return None
        if not self._suspect:
            self._suspect = True
            return None
        doing = "between two steps" if self._stage is None else f"in {self._stage}"
        return f"it hangs: no message for {silent_s:.0f} s {doing}, the limit is {limit_s:g} s ({option})"
