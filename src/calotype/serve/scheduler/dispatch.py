"""Jobs from the queue to workers that have room. Knows nothing of what workers say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from calotype.serve.ipc.messages import RunWorkflow, UnsendableError, Work
from calotype.serve.metrics import Metrics
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository.complete import Completion
from calotype.serve.scheduler.job_results import ResultRecorder, failed
from calotype.serve.scheduler.job_subscriptions import JobSubscriptions
from calotype.serve.scheduler.running_jobs import Running, RunningJobs
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.task_group import BackgroundTasks
from calotype.serve.scheduler.worker_slot import Sleep, WorkerSlot
from calotype.serve.service import UnavailableError
from calotype.serve.workflow.run import WorkflowRun
from calotype.spec.job import Job, JobKind

_log = logging.getLogger(__name__)


class Dispatcher:
    """Fills workers. `seats` is the very list that others change; `listen` makes a workflow's ear."""

    def __init__(
        self,
        queue: JobQueue,
        seats: Sequence[WorkerSlot],
        running: RunningJobs,
        outcomes: ResultRecorder,
        watchers: JobSubscriptions,
        listen: Callable[[Running], WorkflowRun],
        errands: BackgroundTasks,
        settings: DeploymentSettings,
        metrics: Metrics,
        sleep: Sleep,
    ) -> None:
        self._errands = errands
        self._queue, self._seats, self._running, self._outcomes = queue, seats, running, outcomes
        self._watchers, self._listen, self._settings = watchers, listen, settings
        self._metrics, self._sleep = metrics, sleep
        self.draining = False
        self._reserved: WorkerSlot | None = None
        """Takes no more jobs, so that one can have it for itself."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be room, or something to do."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._fill()
            except UnavailableError as error:
                _log.error("no jobs can be handed out: %s", error)
                await self._sleep(self._settings.first_pause_s)
                self.wake()

    async def _fill(self) -> None:
        if not self._queue.counts.queued:
            self._reserved = None
            return
        # Nothing more is begun while what was done cannot be kept.
        if self.draining or self._outcomes.refused:
            return
        room = sum(self._room(seat) for seat in self._seats)
        workflows = sum(self._room(seat, "workflow") for seat in self._seats)
        if room + workflows:
            await self._hand_out(await self._queue.claim(room, workflows=workflows), self._seats)
        if not self.draining and not self._outcomes.refused:
            await self._fill_alone()

    def _room(self, seat: WorkerSlot, kind: JobKind = "pictures") -> int:
        if seat is self._reserved:
            return 0
        return seat.workflow_room if kind == "workflow" else seat.free_rows

    async def _fill_alone(self) -> None:
        """One job at a time of those that may be what kills workers, on a worker that has nothing else."""
        ready = [seat for seat in self._seats if seat.state == "ready"]
        self._reserved = None
        if not self._queue.counts.alone or not ready or any(seat.alone for seat in ready):
            return
        emptiest = min(ready, key=lambda seat: len(seat.jobs))
        if emptiest.jobs:
            self._reserved = emptiest
            return
        claimed = await self._queue.claim(1, alone=True)
        if not claimed:
            claimed = await self._queue.claim(0, workflows=1, alone=True)
        await self._hand_out(claimed, [emptiest])
        emptiest.alone = next((job.id for job in claimed if job.id in emptiest.jobs), None)

    async def _hand_out(self, jobs: Sequence[Job], seats: Sequence[WorkerSlot]) -> None:
        """Give claimed jobs to workers, all before any wait: from then on each can be stopped."""
        given = [self._give(job, seats) for job in jobs]
        nowhere = [job.id for job, running in zip(jobs, given, strict=True) if running is None]
        await self._outcomes.requeue(nowhere, lost=False)
        for seat in seats:
            told = [running for running in given if running is not None and running.seat is seat]
            if told:
                # A worker that does not read keeps no other waiting.
                self._errands.spawn(self._send_all(told))

    def _give(self, job: Job, seats: Sequence[WorkerSlot]) -> Running | None:
        """Choose a worker: one that has the model with that preset, then the one with most room."""
        free = [seat for seat in seats if self._room(seat, job.kind) > 0]
        if not free:
            return None
        seat = max(free, key=lambda seat: (seat.holds(job.model, job.preset), seat.free_rows))
        running = self._running.add(job, seat)
        if job.kind == "workflow":
            running.workflow = self._listen(running)
        # The time of day may have jumped.
        self._metrics.wait_seconds.observe(max(0.0, (job.started_at or 0.0) - job.created_at))
        self._watchers.publish(job)
        return running

    async def _send_all(self, given: Sequence[Running]) -> None:
        for running in given:
            await self._send_work(running)

    async def _send_work(self, running: Running) -> None:
        job = running.job
        try:
            given = await self._queue.given(job)
        except OSError as error:
            _log.error("job %s: an image given with it cannot be read: %s", job.id, error)
            reason = "an image given with it is missing or damaged on the server's disk; send the job again"
            await self._fail(running, failed("internal", reason))
            return
        # Its worker may have died meanwhile.
        if not self._running.still(running):
            return
        message = self._workflow_of(job, given) if running.workflow else self._work_of(job, given)
        running.sent = True
        try:
            await running.seat.send(message, list(given.values()))
        except UnsendableError as error:
            await self._fail(running, failed("bad_request", f"no worker can be told of it: {error}"))
            return
        if running.stop_wanted:
            await running.stop()

    async def _fail(self, running: Running, ending: Completion) -> None:
        """End a job that its worker knows nothing of."""
        self._running.remove(running)
        running.seat.workflows.discard(running.job.id)
        await self._outcomes.end(running.job.id, ending)

    def _work_of(self, job: Job, given: Mapping[str, bytes]) -> Work:
        return Work(
            job_id=job.id,
            model=job.model,
            request=job.request,
            has_image="image" in given,
            has_mask="mask" in given,
            previews=self._watchers.wants_previews(job.id),
            preset=job.preset,
        )

    def _workflow_of(self, job: Job, given: Mapping[str, bytes]) -> RunWorkflow:
        return RunWorkflow(
            job_id=job.id,
            sequence=job.sequence,
            prompt=job.request["prompt"],
            outputs=tuple(job.request["outputs"]),
            extra_pnginfo=job.request["extra_data"].get("extra_pnginfo") or {},
            inputs=tuple(given),
            limits=self._settings.limits.of_graphs(),
        )
