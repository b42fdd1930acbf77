"""An active job in a worker: which of its images have started, and their progress.

Every image is a separate run, so it can use any free rows, and a batch can be halved down to one image.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from math import ceil

from calotype.serve.ipc.messages import Work
from calotype.serve.worker.group_scheduler import Group
from calotype.serve.worker.model_cache import Lease
from calotype.serve.worker.protocols import ImageRun, JobPlan, Png

MAX_PREVIEWS = 8
"""Limit for one image: a preview of every step would cost much and show little."""


@dataclass(eq=False)
class ActiveJob:
    """One job, from its parsed request to its last decoded image."""

    work: Work
    lease: Lease
    order: JobPlan
    previews: bool
    begun: int = 0
    """Number of started images, and index of the next."""
    runs: dict[int, ImageRun] = field(default_factory=dict)
    """Images being sampled, by index."""
    files: dict[int, Future[Png]] = field(default_factory=dict)
    """Decoded images, by index; threads encode them."""
    passed_over: int = 0
    """Evaluations that this job could have shared but did not."""
    ended: bool = False
    _steps_of_finished: int = 0
    _steps_per_image: int = 0

    @property
    def job_id(self) -> str:
        return self.work.job_id

    @property
    def group(self) -> Group:
        order, lease = self.order, self.lease
        return Group(lease.model, order.loras, order.shape, lease.preset, order.text_size)

    @property
    def has_more(self) -> bool:
        return self.begun < len(self.order.seeds)

    @property
    def rows_wanted(self) -> int:
        """Rows for all its active and remaining images."""
        return self.order.rows * (len(self.runs) + len(self.order.seeds) - self.begun)

    @property
    def steps_left(self) -> int:
        """Estimated remaining steps of all its images: those not started may take fewer."""
        under_way = sum(run.total_steps - run.steps_done for run in self.runs.values())
        return under_way + self.order.steps * (len(self.order.seeds) - self.begun)

    @property
    def has_waited(self) -> bool:
        """Whether it was passed over as often as it has steps; from then on it comes first."""
        return self.passed_over >= self.order.steps * len(self.order.seeds)

    @property
    def steps_total(self) -> int:
        """Steps of all its images."""
        return self._steps_per_image * len(self.order.seeds)

    @property
    def steps_done(self) -> int:
        return self._steps_of_finished + sum(run.steps_done for run in self.runs.values())

    def begin_next(self) -> int:
        """Start the next image and return its index."""
        run = self.order.begin(self.begun)
        self._steps_per_image = run.total_steps
        self.runs[self.begun] = run
        self.begun += 1
        return self.begun - 1

    def leave(self, index: int) -> ImageRun:
        """Remove the run of a finished image and return it."""
        run = self.runs.pop(index)
        self._steps_of_finished += run.total_steps
        return run

    def preview(self, run: ImageRun) -> bytes | None:
        """Return a preview of a run that completed a step, if one is due."""
        every = ceil(run.total_steps / MAX_PREVIEWS)
        if not self.previews or run.done or run.steps_done % every:
            return None
        return self.lease.engine.preview(run)
