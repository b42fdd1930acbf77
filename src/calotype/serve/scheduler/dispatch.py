"""Claims jobs from the queue and assigns them to workers that have room."""

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
    """Assigns jobs. `slots` is the scheduler's live list; `listen` creates a workflow's event receiver."""

    def __init__(
        self,
        queue: JobQueue,
        slots: Sequence[WorkerSlot],
        running: RunningJobs,
        results: ResultRecorder,
        subscriptions: JobSubscriptions,
        listen: Callable[[Running], WorkflowRun],
        background: BackgroundTasks,
        settings: DeploymentSettings,
        metrics: Metrics,
        sleep: Sleep,
    ) -> None:
        self._background = background
        self._queue, self._slots, self._running, self._results = queue, slots, running, results
        self._subscriptions, self._listen, self._settings = subscriptions, listen, settings
        self._metrics, self._sleep = metrics, sleep
        self.draining = False
        self._reserved: WorkerSlot | None = None
        """The worker that takes no new jobs until it is empty, so that one job can run alone on it."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Check for jobs and room again."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._fill()
            except UnavailableError as error:
                _log.error("no jobs can be dispatched: %s", error)
                await self._sleep(self._settings.first_pause_s)
                self.wake()

    async def _fill(self) -> None:
        if not self._queue.counts.queued:
            self._reserved = None
            return
        # Start no more jobs while the results of earlier ones cannot be written.
        if self.draining or self._results.pending_retries:
            return
        room = sum(self._room(slot) for slot in self._slots)
        workflows = sum(self._room(slot, "workflow") for slot in self._slots)
        if room + workflows:
            await self._dispatch(await self._queue.claim(room, workflows=workflows), self._slots)
        if not self.draining and not self._results.pending_retries:
            await self._run_one_alone()

    def _room(self, slot: WorkerSlot, kind: JobKind = "pictures") -> int:
        if slot is self._reserved:
            return 0
        return slot.workflow_room if kind == "workflow" else slot.free_rows

    async def _run_one_alone(self) -> None:
        """Run a job that may kill workers alone, on a worker without other jobs; one such job at a time."""
        ready = [slot for slot in self._slots if slot.state == "ready"]
        self._reserved = None
        if not self._queue.counts.alone or not ready or any(slot.alone for slot in ready):
            return
        least_busy = min(ready, key=lambda slot: len(slot.jobs))
        if least_busy.jobs:
            self._reserved = least_busy
            return
        claimed = await self._queue.claim(1, alone=True)
        if not claimed:
            claimed = await self._queue.claim(0, workflows=1, alone=True)
        await self._dispatch(claimed, [least_busy])
        least_busy.alone = next((job.id for job in claimed if job.id in least_busy.jobs), None)

    async def _dispatch(self, jobs: Sequence[Job], slots: Sequence[WorkerSlot]) -> None:
        """Assign all claimed jobs before the first await: from then on each can be stopped."""
        assigned_jobs = [self._assign(job, slots) for job in jobs]
        unassigned = [job.id for job, running in zip(jobs, assigned_jobs, strict=True) if running is None]
        await self._results.requeue(unassigned, lost=False)
        for slot in slots:
            batch = [running for running in assigned_jobs if running is not None and running.slot is slot]
            if batch:
                # Workers are sent to concurrently: a worker that does not read delays no other.
                self._background.spawn(self._send_all(batch))

    def _assign(self, job: Job, slots: Sequence[WorkerSlot]) -> Running | None:
        """Assign a job to a worker: one that has the model with that preset, then the one with most room."""
        free = [slot for slot in slots if self._room(slot, job.kind) > 0]
        if not free:
            return None
        slot = max(free, key=lambda slot: (slot.holds(job.model, job.preset), slot.free_rows))
        running = self._running.add(job, slot)
        if job.kind == "workflow":
            running.workflow = self._listen(running)
        # The wall clock may have jumped.
        self._metrics.wait_seconds.observe(max(0.0, (job.started_at or 0.0) - job.created_at))
        self._subscriptions.publish(job)
        return running

    async def _send_all(self, batch: Sequence[Running]) -> None:
        for running in batch:
            await self._send_work(running)

    async def _send_work(self, running: Running) -> None:
        job = running.job
        try:
            inputs = await self._queue.given(job)
        except OSError as error:
            _log.error("job %s: one of its input images cannot be read: %s", job.id, error)
            reason = "an input image is missing or damaged on the server's disk; send the job again"
            await self._fail(running, failed("internal", reason))
            return
        # Its worker may have died meanwhile.
        if not self._running.still(running):
            return
        message = self._workflow_message(job, inputs) if running.workflow else self._work_message(job, inputs)
        running.sent = True
        try:
            await running.slot.send(message, list(inputs.values()))
        except UnsendableError as error:
            await self._fail(running, failed("bad_request", f"it cannot be sent to a worker: {error}"))
            return
        if running.stop_wanted:
            await running.stop()

    async def _fail(self, running: Running, completion: Completion) -> None:
        """Fail a job that its worker has not received."""
        self._running.remove(running)
        running.slot.workflows.discard(running.job.id)
        await self._results.end(running.job.id, completion)

    def _work_message(self, job: Job, inputs: Mapping[str, bytes]) -> Work:
        return Work(
            job_id=job.id,
            model=job.model,
            request=job.request,
            has_image="image" in inputs,
            has_mask="mask" in inputs,
            previews=self._subscriptions.wants_previews(job.id),
            preset=job.preset,
        )

    def _workflow_message(self, job: Job, inputs: Mapping[str, bytes]) -> RunWorkflow:
        return RunWorkflow(
            job_id=job.id,
            sequence=job.sequence,
            prompt=job.request["prompt"],
            outputs=tuple(job.request["outputs"]),
            extra_pnginfo=job.request["extra_data"].get("extra_pnginfo") or {},
            inputs=tuple(inputs),
            limits=self._settings.limits.of_graphs(),
        )
