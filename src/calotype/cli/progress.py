"""Progress on stderr, as a bar on a terminal or as occasional lines elsewhere; Ctrl-C handling."""

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
    """Steps per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.2f} it/s", style="progress.data.speed")


class Bar:
    """A `calotype.core.progress.Progress` that draws a bar."""

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
    """A `calotype.core.progress.Progress` for log files, with at most one line per interval.

    Lines show the description; work without one shows its label and progress if it takes long.
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
            # Work describes a step before it counts it as done.
            self._write(f"{self._done + 1}/{self._total}  {label}")
            self._last_s = now


@contextmanager
def progress_for(*, quiet: bool = False) -> Iterator[Bar]:
    """Show a progress bar while the block runs."""
    # In a narrow terminal only the bar shrinks, as the numbers matter more.
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
    """Progress for long work: a bar on a terminal, lines elsewhere."""
    if not console(stderr=True).is_terminal:
        yield Lines(lambda text: print(text, file=sys.stderr, flush=True))
        return
    with progress_for() as bar:
        yield bar


@contextmanager
def cancellable() -> Iterator[CancelToken]:
    """Stop between two steps at the first Ctrl-C, at once at the second."""
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
    """Inside `cancellable`, let Ctrl-C stop at once: loading a model has no steps and no results to lose."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
