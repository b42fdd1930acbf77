"""Progress bars for people: on stderr, only where someone can watch. Knows nothing of the work."""

from collections.abc import Iterator
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
from rich.text import Text

from calotype.cli.output import console


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


@contextmanager
def shown(*, quiet: bool = False) -> Iterator[Bar]:
    """A bar for as long as the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Speed(),
        TimeRemainingColumn(),
    )
    out = console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        yield Bar(progress)
