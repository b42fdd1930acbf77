"""Workers and the queue's jobs brought together, from start to stop. Belongs to one event loop.

Read `seat` (one worker's place), `running` (who has what), `handing_out` and `hearing` first. Knows nothing
of interfaces, nor of what may be asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from calotype.serve.ipc.messages import (
    Evaluated,
    Failed,
    Finished,
    ForgetResults,
    FromWorker,
    Hello,
    Load,
    Models,
    NodeNews,
    Stage,
    Stepped,
    Stopped,
    Unload,
    Watch,
    WorkflowFinished,
)
from calotype.serve.metrics import Metrics
from calotype.serve.queue.queue import JobQueue
from calotype.serve.scheduler.dispatch import Dispatcher
from calotype.serve.scheduler.event_bus import EventBus
from calotype.serve.scheduler.heartbeat import Monotonic
from calotype.serve.scheduler.job_results import ResultRecorder
from calotype.serve.scheduler.job_subscriptions import JobSubscriptions
from calotype.serve.scheduler.maintenance import Maintenance
from calotype.serve.scheduler.model_requests import PendingModelRequests
from calotype.serve.scheduler.queue_positions import QueuePositions
from calotype.serve.scheduler.running_jobs import RunningJobs
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.task_group import BackgroundTasks
from calotype.serve.scheduler.worker_events import WorkerEventHandler
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.serve.scheduler.worker_slot import Sleep, WorkerSlot
from calotype.serve.service import JobEvent, UnavailableError
from calotype.serve.workflow.run import Spend
from calotype.spec.job import FINAL_STATES, Job

_log = logging.getLogger(__name__)

_LOOK_S = 10.0
"""How often workers are looked at, if not more often."""


class Scheduler:
    """Keeps workers busy with the queue's jobs."""

    def __init__(
        self,
        queue: JobQueue,
        workers: Mapping[str, StartWorker],
        settings: DeploymentSettings,
        metrics: Metrics,
        *,
        sleep: Sleep = asyncio.sleep,
        monotonic: Monotonic = time.monotonic,
        spend: Spend = lambda _client, _pictures: None,
    ) -> None:
        """`spend` counts pictures that workflows save beyond what was told beforehand."""
        self._queue, self._settings, self._metrics = queue, settings, metrics
        self._sleep, self._monotonic = sleep, monotonic
        metrics.queued.set_function(lambda: queue.counts.queued)
        metrics.running.set_function(lambda: queue.counts.running)
        self.seats = [self._seat(name, start) for name, start in workers.items()]
        self._seated: dict[WorkerSlot, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._errands = BackgroundTasks(self._went_on)
        self._running = RunningJobs(self._went_on)
        self.followers = EventBus(self._standing)
        self.watchers = JobSubscriptions(self._previews_changed, self._job_changed)
        self._outcomes = ResultRecorder(queue, self.watchers, metrics, settings, sleep)
        self._hearing = WorkerEventHandler(
            self._running, self._outcomes, self.watchers, self.followers, self._errands, metrics, spend
        )
        self._out = Dispatcher(
            queue,
            self.seats,
            self._running,
            self._outcomes,
            self.watchers,
            self._hearing.listen,
            self._errands,
            settings,
            metrics,
            sleep,
        )
        self.line = QueuePositions(queue, self.watchers, settings)
        self._timekeeper = Maintenance(queue, self._overdue, settings, sleep)
        self._questions = PendingModelRequests()
        self._wanted_models: dict[str, None] = {}
        """Loaded by request, so that a worker's successor has to load them too."""

    async def start(self) -> None:
        """Start the workers and begin to hand out jobs; returns at once."""
        if self._queue.recovered:
            _log.warning("%d jobs were running when the last server died", len(self._queue.recovered))
        for job in self._queue.recovered:
            self._outcomes.publish(job)
        for seat in self.seats:
            self._seated[seat] = self.keep(seat.run())
        for loop in (
            self._out.run(),
            self._keep_looking(),
            self.line.run(),
            self._timekeeper.enforce_deadlines(),
            self._timekeeper.enforce_retention(),
            self._timekeeper.keep_checking_disk(),
            self._timekeeper.keep_checking_database(),
        ):
            self.keep(loop)
        self._out.wake()

    def keep(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this up to the deployment's end, which its failure would be."""
        return self._errands.supervise(loop)

    # Workers

    def add(self, name: str, start: StartWorker) -> WorkerSlot:
        """One more worker, while others work."""
        seat = self._seat(name, start)
        self.seats.append(seat)
        self._seated[seat] = self.keep(seat.run())
        return seat

    def _seat(self, name: str, start: StartWorker) -> WorkerSlot:
        return WorkerSlot(name, start, self, self._settings, self._sleep, self._monotonic)

    async def retire(self, seat: WorkerSlot) -> None:
        """One worker less: it gets no more jobs, and goes when those it has have ended."""
        seat.retire()
        self._count_workers()
        # Others may have been kept from it, or waited for it.
        self._out.wake()
        await self.wait_until(lambda: not seat.jobs)
        task = self._seated[seat]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del self._seated[seat]
        self.seats.remove(seat)
        self._questions.on_worker_died(seat)
        for gauge in (self._metrics.memory_bytes, self._metrics.free_bytes):
            gauge.labels(seat.name).set(0)

    def retire_in_background(self, seat: WorkerSlot) -> None:
        """The same, while others come and go."""
        seat.retire()
        self._errands.spawn(self.retire(seat))

    @property
    def staying(self) -> list[WorkerSlot]:
        """Seats but for those whose worker leaves."""
        return [seat for seat in self.seats if seat.state != "leaving"]

    async def load(self, model: str) -> None:
        """Have a model ready on every worker that is."""
        await self._questions.ask_all(self.seats, Load(model=model), self._settings.load_s)
        self._wanted_models[model] = None

    async def unload(self, model: str) -> None:
        self._wanted_models.pop(model, None)
        await self._questions.ask_all(self.seats, Unload(model=model), self._settings.load_s)

    @property
    def ready(self) -> bool:
        """Whether a worker is there to take jobs."""
        return not self._errands.broken and any(seat.state == "ready" for seat in self.seats)

    @property
    def is_hopeless(self) -> str | None:
        """Why no worker will ever be there, if that is so."""
        if self._errands.broken:
            return "it met a mistake of its own, which its log tells"
        if all(seat.state == "given up" for seat in self.seats):
            return (
                f"its workers keep dying: {'; '.join(f'{seat.name}: {seat.problem}' for seat in self.seats)}"
            )
        return None

    async def _keep_looking(self) -> None:
        """For workers that hang."""
        while True:
            await asyncio.sleep(min(_LOOK_S, self._settings.hang_s / 10))
            for seat in self.seats:
                if seat.kill_if_hung():
                    self._metrics.worker_hangs.labels(seat.name).inc()

    def _count_workers(self) -> None:
        self._metrics.workers_ready.set(sum(seat.state == "ready" for seat in self.seats))

    # Jobs

    @property
    def unended(self) -> int:
        """How many jobs wait or run."""
        counts = self._queue.counts
        return counts.queued + counts.running

    def accepted(self, job: Job) -> None:
        """A job has come into the queue."""
        if job.id not in self._running:
            self.followers.publish_change(job)
        self._out.wake()
        if job.deadline_at is not None:
            self._timekeeper.wake()

    def with_live_progress(self, job: Job) -> Job:
        """The job with what its worker has said of it since."""
        running = self._running.get(job.id)
        return running.with_live_progress() if running and job.state == "running" else job

    async def cancel(self, job_id: str, client: str | None) -> Job:
        """Ask for a job's end."""
        before = await self._queue.job(job_id, client)
        if before.state in FINAL_STATES:
            return before
        job, ended = await self._queue.request_cancel(job_id, client)
        if ended:
            self._outcomes.publish(job)
        elif running := self._running.get(job_id):
            running.stop_wanted = True
            await running.stop()
        return self.with_live_progress(job)

    async def _overdue(self, job: Job) -> None:
        self._outcomes.publish(job)
        if running := self._running.get(job.id):
            running.stop_wanted = True
            await running.stop()

    def _job_changed(self, job: Job) -> None:
        if job.state == "queued":
            self._out.wake()
        self.line.wake()
        self.followers.publish_change(job)

    def _previews_changed(self, job_id: str, wanted: bool) -> None:
        running = self._running.get(job_id)
        if running is not None and running.sent:
            self._errands.spawn(running.seat.send(Watch(job_id=job_id, previews=wanted)))

    def _standing(self) -> Iterator[JobEvent]:
        return self._hearing.standing()

    # What workers say

    def on_message(self, seat: WorkerSlot, message: FromWorker, attachments: list[bytes]) -> None:
        match message:
            case Evaluated():
                self._hearing.on_evaluated(seat, message)
            case Stepped() | NodeNews() | Finished() | WorkflowFinished() | Failed() | Stopped():
                self._hearing.on_job_message(seat, message, attachments)
            case Hello():
                self._count_workers()
                for model in self._wanted_models:
                    self._errands.spawn(seat.send(Load(model=model)))
                self._went_on()
            case Stage():
                # Heard is all it has to be, and the seat did.
                pass
            case _:
                self._questions.on_message(seat, message)
                if isinstance(message, Models):
                    self._metrics.memory_bytes.labels(seat.name).set(message.memory_bytes)
                    self._metrics.free_bytes.labels(seat.name).set(message.free_bytes)

    async def on_worker_died(self, seat: WorkerSlot, jobs: list[str]) -> None:
        self._questions.on_worker_died(seat)
        self._count_workers()
        self._changed.set()
        if seat.state == "restarting":
            self._metrics.worker_restarts.labels(seat.name).inc()
        self._hearing.on_worker_died(jobs)

    def _went_on(self) -> None:
        self._changed.set()
        self._out.wake()

    # The end

    @property
    def draining(self) -> bool:
        return self._out.draining

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something about jobs or workers."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def free(self, *, models: bool, results: bool) -> None:
        """Have every worker let go its models, and what workflows' nodes made; without waiting for it."""
        for seat in [seat for seat in self.seats if seat.state == "ready"]:
            for held in seat.models if models else ():
                await seat.send(Unload(model=held.name))
            if results:
                await seat.send(ForgetResults())

    async def drain(self, seconds: float) -> None:
        """Hand out nothing more; what runs may end within `seconds`, then it stops and is queued again."""
        self._out.draining = True
        if not await self._quiet_within(seconds):
            for running in self._running:
                await running.stop()
            await self._quiet_within(self._settings.stop_s)

    async def _quiet_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.wait_until(lambda: not self._running and not self._errands)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End the workers; what they still had is queued for the next start."""
        self._out.draining = True
        await self._errands.close(self._settings.stop_s)
        self._running.clear()
        try:
            await self._queue.requeue_all()
        except UnavailableError as error:
            _log.error("running jobs could not be put back; the next start will: %s", error)
        self.watchers.close()
        self.followers.close()
