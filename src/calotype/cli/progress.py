"""Progress for people, on stderr: a bar where someone watches, now and then a line where not.

Knows nothing of the work.
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from calotype.cli.output import console
from calotype.core.progress import CancelToken

SECONDS_BETWEEN_LINES = 10


class _Speed(ProgressColumn):
    """Steps per second, as samplers are compared by."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.2f} it/s", style="progress.data.speed")


class Bar:
    """A `calotype.core.progress.Progress` that draws."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def start(self, label: str, total: int) -> None:
        self._progress.reset(self._task, total=total, description=label)

    def advance(self, amount: int = 1) -> None:
        self._progress.advance(self._task, amount)

    def describe(self, label: str) -> None:
        self._progress.update(self._task, description=label)


class Lines:
    """A `calotype.core.progress.Progress` for files: a line every so many seconds at most.

    It says what is described; of work that describes nothing, its name and how far it is, if it takes long.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._done, self._total = 0, 0
        self._last_s = -math.inf
        self._label: str | None = None
        self._silent_since_s: float | None = None

    def start(self, label: str, total: int) -> None:
        self._done, self._total, self._label = 0, total, label

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if self._label is None:
            return
        now = self._clock()
        if self._silent_since_s is None:
            self._silent_since_s = now
        elif now - self._silent_since_s >= SECONDS_BETWEEN_LINES:
            self._write(f"{self._done}/{self._total}  {self._label}")
            self._silent_since_s = now

    def describe(self, label: str) -> None:
        self._label = None
        now, ends = self._clock(), self._done + 1 >= self._total
        if ends or now - self._last_s >= SECONDS_BETWEEN_LINES:
            # Described before it counts as done.
            self._write(f"{self._done + 1}/{self._total}  {label}")
            self._last_s = now


@contextmanager
def progress_for(*, quiet: bool = False) -> Iterator[Bar]:
    """A bar for as long as the block runs."""
    # All but the bar keep their width: in a narrow terminal the numbers are worth more than it is.
    whole = Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(table_column=Column(no_wrap=False)),
        MofNCompleteColumn(table_column=whole),
        _Speed(table_column=whole),
        TimeRemainingColumn(table_column=whole),
    )
    out = console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        yield Bar(progress)


@contextmanager
def show_progress() -> Iterator[Bar | Lines]:
    """For work of hours: a bar on a terminal, lines elsewhere."""
    if not console(stderr=True).is_terminal:
        yield Lines(lambda text: print(text, file=sys.stderr, flush=True))
        return
    with progress_for() as bar:
        yield bar


@contextmanager
def cancellable() -> Iterator[CancelToken]:
    """The first Ctrl-C stops between two steps; a second one stops at once."""
    token = CancelToken()

    def on_signal(*_: object) -> None:
        if token.cancelled:
            raise KeyboardInterrupt
        token.cancel()

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield token
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside `cancellable`: Ctrl-C stops at once. A model that loads has no steps, and nothing to lose."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
