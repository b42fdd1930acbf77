"""Progress for people: one line of a narrow terminal, and lines in a file."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from calotype.cli import progress as module
from calotype.cli.progress import Lines, progress_for, show_progress
from calotype.core.progress import Progress
from calotype.spec.recipe import Recipe
from calotype.train.callbacks.loggers import ProgressBar
from calotype.train.metrics import Metrics
from calotype.train.trainer import StepMetrics


class _Loop:
    class process:  # noqa: N801 - a loop's own name for it
        world_size = 8


def train_one_step(progress: Progress) -> None:
    """What a large run on eight devices says."""
    recipe = Recipe.parse({"name": "bench-sd2-base", "trainer": {"max_steps": 100_000}})
    loop: Any = _Loop()
    news = StepMetrics(1, 0.1234, 1.0, 1e-4, 0, 2385.31, False, 141 * 2**30, {})
    ProgressBar(progress, recipe, 0, Metrics(5000.0)).after_step(news, loop)


def test_all_numbers_fit_into_a_hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(module, "console", lambda **_: terminal)
    with progress_for() as bar:
        train_one_step(bar)
        bar._progress.refresh()
    said = "loss 0.1234  2385.3 samples/s (298.2 each)  141 GiB  MFU 48%"
    [line] = {line for line in drawn.getvalue().replace("\x1b", "\n").splitlines() if said in line}
    assert "1/100000 " in line
    assert "…" not in line
    assert len(f"{said}  12345/100000 12.34 it/s 0:00:00") <= 100


def test_in_a_file_lines_come_now_and_then_and_at_the_end() -> None:
    times, lines = [0.0, 1.0, 9.9, 10.0, 11.0, 12.0], list[str]()
    out = Lines(lines.append, lambda: times.pop(0))
    out.start("run", 6)
    for step in range(1, 7):
        out.describe(f"loss {step}")
        out.advance()
    assert lines == ["1/6  loss 1", "4/6  loss 4", "6/6  loss 6"]


def test_work_that_describes_nothing_says_how_far_it_is_once_it_takes_long() -> None:
    times, lines = [0.0, 9.0, 10.0, 19.0, 20.0, 20.5], list[str]()
    out = Lines(lines.append, lambda: times.pop(0))
    out.start("rendering", 4000)
    for _ in range(4):
        out.advance(1000)
    out.start("learning", 2)
    out.advance()
    out.describe("loss 1")
    out.advance()
    assert lines == ["3000/4000  rendering", "1/2  learning", "2/2  loss 1"]


def test_where_nobody_watches_training_writes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as progress:
        train_one_step(progress)
    said = "loss 0.1234  2385.3 samples/s (298.2 each)  141 GiB  MFU 48%"
    assert capsys.readouterr().err == f"1/100000  {said}\n"
