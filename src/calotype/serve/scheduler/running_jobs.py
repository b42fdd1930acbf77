"""Jobs that workers have. Knows nothing of how they came there, nor of what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calotype.serve.ipc.messages import Stop
from calotype.serve.scheduler.worker_slot import WorkerSlot
from calotype.serve.workflow.run import WorkflowRun
from calotype.spec.job import Job


@dataclass(eq=False)
class Running:
    """A job that a worker has."""

    job: Job
    seat: WorkerSlot
    steps: tuple[int, int]
    sent: bool = False
    stop_wanted: bool = False
    workflow: WorkflowRun | None = None
    """What it has told, where it is a workflow."""

    def with_live_progress(self) -> Job:
        return self.job.model_copy(update={"steps_done": self.steps[0], "steps_total": self.steps[1]})

    async def stop(self) -> None:
        """Tell its worker to leave it, if that has it already."""
        if self.sent:
            await self.seat.send(Stop(job_id=self.job.id))


class RunningJobs:
    """All of them, by id. `on_leave` hears when a worker has one no more."""

    def __init__(self, on_leave: Callable[[], None]) -> None:
        self._on_leave = on_leave
        self._jobs: dict[str, Running] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._jobs.values()))

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def get(self, job_id: str) -> Running | None:
        return self._jobs.get(job_id)

    def at(self, seat: WorkerSlot, job_id: str) -> Running | None:
        """A job of this worker's; what another one says of it does not count."""
        running = self._jobs.get(job_id)
        return running if running is not None and running.seat is seat else None

    def still(self, running: Running) -> bool:
        """Whether its worker has it still, at the same attempt."""
        return self._jobs.get(running.job.id) is running

    def add(self, job: Job, seat: WorkerSlot) -> Running:
        """A worker has it from here on."""
        seat.assign(job.id, workflow=job.kind == "workflow")
        running = self._jobs[job.id] = Running(job, seat, (job.steps_done, job.steps_total))
        return running

    def remove(self, running: Running) -> None:
        """Its worker has it no more."""
        self._jobs.pop(running.job.id, None)
        running.seat.jobs.discard(running.job.id)
        if running.seat.alone == running.job.id:
            running.seat.alone = None
        self._on_leave()

    def clear(self) -> None:
        self._jobs.clear()
