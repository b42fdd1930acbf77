"""A window of steps to look into: a torch trace without any tool, and marks for nsys if it is listening.

`nsys profile --capture-range=cudaProfilerApi` records exactly the window. Knows nothing of what a step does.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from calotype.spec.recipe import ProfilePart
from calotype.train.loop import Loop, StepNews


class ProfileWindow:
    """Starts after the step before `start_step` and ends after `end_step`."""

    def __init__(self, part: ProfilePart, folder: Path, rank: int) -> None:
        self._part, self._rank, self._folder = part, rank, folder
        self._profiler: Any = None
        self._nvtx: Any = None

    def __enter__(self) -> Self:
        if self._part.start_step <= 1:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def after_step(self, news: StepNews, loop: Loop) -> None:
        del loop
        if news.step == self._part.start_step - 1:
            self._start()
        elif news.step == self._part.end_step:
            self._end()

    def _start(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.cudart().cudaProfilerStart()
            self._nvtx = torch.autograd.profiler.emit_nvtx(record_shapes=self._part.gen_shape)
        self._profiler = torch.profiler.profile(record_shapes=self._part.gen_shape)
        self._profiler.__enter__()

    def _end(self) -> None:
        if self._profiler is None:
            return
        self._profiler.__exit__(None, None, None)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(self._folder / f"profile-rank{self._rank}.json.gz"))
        self._profiler = None
        if torch.cuda.is_available():
            torch.cuda.cudart().cudaProfilerStop()
