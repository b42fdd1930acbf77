"""The jobs that workers have, by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calotype.serve.ipc.messages import Stop
from calotype.serve.scheduler.worker_slot import WorkerSlot
from calotype.serve.workflow.run import WorkflowRun
from calotype.spec.job import Job


@dataclass(eq=False)
class Running:
    """A job assigned to a worker."""

    job: Job
    slot: WorkerSlot
    steps: tuple[int, int]
    sent: bool = False
    stop_wanted: bool = False
    workflow: WorkflowRun | None = None
    """The state of its nodes if it is a workflow."""

    def with_live_progress(self) -> Job:
        return self.job.model_copy(update={"steps_done": self.steps[0], "steps_total": self.steps[1]})

    async def stop(self) -> None:
        """Ask its worker to stop it, if the job was sent."""
        if self.sent:
            await self.slot.send(Stop(job_id=self.job.id))


class RunningJobs:
    """All running jobs. `on_leave` is called when a worker no longer has one."""

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

    def at(self, slot: WorkerSlot, job_id: str) -> Running | None:
        """A job of this worker; messages of other workers about it are ignored."""
        running = self._jobs.get(job_id)
        return running if running is not None and running.slot is slot else None

    def still(self, running: Running) -> bool:
        """Whether its worker still has it, at the same attempt."""
        return self._jobs.get(running.job.id) is running

    def add(self, job: Job, slot: WorkerSlot) -> Running:
        """Assign a job to a worker."""
        slot.assign(job.id, workflow=job.kind == "workflow")
        running = self._jobs[job.id] = Running(job, slot, (job.steps_done, job.steps_total))
        return running

    def remove(self, running: Running) -> None:
        """Remove a job from its worker."""
        self._jobs.pop(running.job.id, None)
        running.slot.jobs.discard(running.job.id)
        if running.slot.alone == running.job.id:
            running.slot.alone = None
        self._on_leave()

    def clear(self) -> None:
        self._jobs.clear()
