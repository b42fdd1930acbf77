"""The window of a profile: when it opens and closes, and what nsys is told."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from calotype.spec.recipe_sections import ProfileConfig
from calotype.train.callbacks import profiler as profiler_module
from calotype.train.callbacks.profiler import ProfileWindow

PART = ProfileConfig(enabled=True, start_step=3, end_step=4, gen_shape=True)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a GPU and both profilers were asked, in order; there is no GPU here."""
    told: list[str] = []

    def profiler(name: str) -> Any:
        @contextmanager
        def kind(*, record_shapes: bool) -> Any:
            told.append(f"{name} shapes={record_shapes}")
            yield
            told.append(f"end of {name}")

        return kind

    runtime = SimpleNamespace(
        cudaProfilerStart=lambda: told.append("start"), cudaProfilerStop=lambda: told.append("stop")
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", profiler("nvtx"))
    return told


def steps(window: ProfileWindow, events: list[str], first: int, last: int) -> list[str]:
    """The events of a run over these steps, each step among them."""
    with window:
        for step in range(first, last + 1):
            events.append(str(step))
            news: Any = SimpleNamespace(step=step)
            loop: Any = None
            window.after_step(news, loop)
    return events


OPENED, CLOSED = ["start", "nvtx shapes=True"], ["end of nvtx", "stop"]


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [
        (1, 6, ["1", "2", *OPENED, "3", "4", *CLOSED, "5", "6"]),
        (3, 5, [*OPENED, "3", "4", *CLOSED, "5"]),
        (4, 5, [*OPENED, "4", *CLOSED, "5"]),
        (1, 3, ["1", "2", *OPENED, "3", *CLOSED]),
        (5, 6, ["5", "6"]),
    ],
)
def test_under_nsys_exactly_the_window_is_marked(
    events: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    first: int,
    last: int,
    wanted: list[str],
) -> None:
    monkeypatch.setenv(profiler_module.NSYS_VARIABLE, "1")
    assert steps(ProfileWindow(PART, tmp_path, 0, first), events, first, last) == wanted
    assert ("steps 3 to 4 are not profiled: this run begins at step 5" in caplog.text) == (first == 5)
    assert not list(tmp_path.iterdir())
