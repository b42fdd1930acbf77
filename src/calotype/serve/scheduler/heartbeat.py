"""Whether a worker lives: how long it has been silent, and how long it may be. Knows nothing of processes.

A worker that has something to do is heard after every step. What takes longer it tells of when it begins, so
that a model may be loaded or compiled in peace. Whoever came back from a long silence may be silent for as
long again, and more: a large batch on a slow device is no hang.
"""

from __future__ import annotations

from collections.abc import Callable

from calotype.serve.ipc.messages import FromWorker, Hello, Stage
from calotype.serve.scheduler.settings import DeploymentSettings

TIMEOUT_FACTOR = 2
"""So many times the longest silence at work that it came back from is no hang either."""
Monotonic = Callable[[], float]


class Heartbeat:
    """Of one worker."""

    def __init__(self, settings: DeploymentSettings, monotonic: Monotonic) -> None:
        self._settings, self._monotonic = settings, monotonic
        self.start()

    def start(self) -> None:
        """A new worker begins."""
        self._stage: str | None = "its start"
        self._longest_s = 0.0
        self.expect()

    def expect(self) -> None:
        """There was nothing to be heard; from here on there is."""
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
        """What is wrong, if it has been silent for too long at two looks in a row.

        At the first, this process may have been away itself, and what the worker said meanwhile be unread.
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
        return (
            f"it hangs: nothing was heard for {silent_s:.0f} s {doing}, the limit is {limit_s:g} s ({option})"
        )
