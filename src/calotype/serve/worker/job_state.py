"""A job under way in a worker: which of its pictures have begun, and how far they are.

Every picture is a run of its own: it fits in wherever rows are left, and a batch can be halved down to one.
Knows nothing of other jobs.
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
"""Of one picture: every step's would be much to send and little to see."""


@dataclass(eq=False)
class ActiveJob:
    """One job, from when its request was understood to when its last picture is decoded."""

    work: Work
    lease: Lease
    order: JobPlan
    previews: bool
    begun: int = 0
    """Pictures that have been started; the next has this index."""
    runs: dict[int, ImageRun] = field(default_factory=dict)
    """Pictures being sampled, by their index."""
    files: dict[int, Future[Png]] = field(default_factory=dict)
    """Pictures that are decoded, by their index; threads make files of them."""
    passed_over: int = 0
    """Evaluations that others had while this one could have shared them."""
    ended: bool = False
    _steps_behind: int = 0
    _steps_each: int = 0

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
        """By its pictures under way and those that have not begun."""
        return self.order.rows * (len(self.runs) + len(self.order.seeds) - self.begun)

    @property
    def steps_left(self) -> int:
        """Of all its pictures, about: those that have not begun may turn out to take fewer."""
        under_way = sum(run.total_steps - run.steps_done for run in self.runs.values())
        return under_way + self.order.steps * (len(self.order.seeds) - self.begun)

    @property
    def has_waited(self) -> bool:
        """Whether others came before it as often as it has steps itself; from then on it comes first."""
        return self.passed_over >= self.order.steps * len(self.order.seeds)

    @property
    def steps_total(self) -> int:
        """Of all its pictures."""
        return self._steps_each * len(self.order.seeds)

    @property
    def steps_done(self) -> int:
        return self._steps_behind + sum(run.steps_done for run in self.runs.values())

    def begin_next(self) -> int:
        """Start the next picture and say which it is."""
        run = self.order.begin(self.begun)
        self._steps_each = run.total_steps
        self.runs[self.begun] = run
        self.begun += 1
        return self.begun - 1

    def leave(self, index: int) -> ImageRun:
        """Take a picture out that is done."""
        run = self.runs.pop(index)
        self._steps_behind += run.total_steps
        return run

    def preview(self, run: ImageRun) -> bytes | None:
        """A preview of a run that completed a step, if it is time for one."""
        every = ceil(run.total_steps / MAX_PREVIEWS)
        if not self.previews or run.done or run.steps_done % every:
            return None
        return self.lease.engine.preview(run)
