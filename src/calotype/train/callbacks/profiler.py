"""Profile a window of steps: NVTX ranges if nsys started the run, else a trace of torch's profiler.

`nsys profile --capture-range=cudaProfilerApi` records exactly the window.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from calotype.spec.recipe_sections import ProfileConfig
from calotype.train.trainer import StepMetrics, Trainer

_log = logging.getLogger(__name__)

NSYS_VARIABLE = "NSYS_PROFILING_SESSION_ID"
"""An environment variable that nsys sets in the programs it starts."""


class ProfileWindow:
    """Starts before `start_step` and ends after `end_step`; a run resumed in between starts at once."""

    def __init__(self, part: ProfileConfig, folder: Path, rank: int, first_step: int) -> None:
        self._part, self._rank, self._folder, self._first_step = part, rank, folder, first_step
        # torch runs one profiler at a time: either it emits ranges for nsys, or it records itself.
        self._under_nsys = NSYS_VARIABLE in os.environ
        self._profiler: Any = None

    def __enter__(self) -> Self:
        if self._first_step > self._part.end_step:
            window = f"{self._part.start_step} to {self._part.end_step}"
            _log.warning("steps %s are not profiled: this run begins at step %d", window, self._first_step)
        elif self._first_step >= self._part.start_step:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del trainer
        if step_metrics.step == self._part.start_step - 1:
            self._start()
        if step_metrics.step == self._part.end_step:
            self._end()

    def _start(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.cudart().cudaProfilerStart()
        kind: Any = torch.autograd.profiler.emit_nvtx if self._under_nsys else torch.profiler.profile
        self._profiler = kind(record_shapes=self._part.gen_shape)
        self._profiler.__enter__()

    def _end(self) -> None:
        if self._profiler is None:
            return
        self._profiler.__exit__(None, None, None)
        if not self._under_nsys:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(self._folder / f"profile-rank{self._rank}.json.gz"))
        self._profiler = None
        if torch.cuda.is_available():
            torch.cuda.cudart().cudaProfilerStop()
