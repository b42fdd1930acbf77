"""Connects the queue's jobs with the workers, from start to stop. Belongs to one event loop.

Read `worker_slot`, `running_jobs`, `dispatch` and `worker_events` first.
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

_HANG_CHECK_S = 10.0
"""The longest interval between two checks for workers that hang."""


class Scheduler:
    """Supervises workers and dispatches the queue's jobs to them."""

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
        """`spend` counts images that workflows save beyond the number that they announced."""
        self._queue, self._settings, self._metrics = queue, settings, metrics
        self._sleep, self._monotonic = sleep, monotonic
        metrics.queued.set_function(lambda: queue.counts.queued)
        metrics.running.set_function(lambda: queue.counts.running)
        self.slots = [self._new_slot(name, start) for name, start in workers.items()]
        self._slot_tasks: dict[WorkerSlot, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._background = BackgroundTasks(self._on_change)
        self._running = RunningJobs(self._on_change)
        self.event_bus = EventBus(self._current_events)
        self.subscriptions = JobSubscriptions(self._previews_changed, self._job_changed)
        self._results = ResultRecorder(queue, self.subscriptions, metrics, settings, sleep)
        self._worker_events = WorkerEventHandler(
            self._running, self._results, self.subscriptions, self.event_bus, self._background, metrics, spend
        )
        self._dispatcher = Dispatcher(
            queue,
            self.slots,
            self._running,
            self._results,
            self.subscriptions,
            self._worker_events.listen,
            self._background,
            settings,
            metrics,
            sleep,
        )
        self.positions = QueuePositions(queue, self.subscriptions, settings)
        self._maintenance = Maintenance(queue, self._on_overdue, settings, sleep)
        self._model_requests = PendingModelRequests()
        self._requested_models: dict[str, None] = {}
        """Models loaded by request, which a restarted worker has to load too."""

    async def start(self) -> None:
        """Start the workers and begin to dispatch jobs; returns at once."""
        if self._queue.recovered:
            _log.warning("%d jobs were running when the last server died", len(self._queue.recovered))
        for job in self._queue.recovered:
            self._results.publish(job)
        for slot in self.slots:
            self._slot_tasks[slot] = self.keep(slot.run())
        for loop in (
            self._dispatcher.run(),
            self._kill_hung_workers(),
            self.positions.run(),
            self._maintenance.enforce_deadlines(),
            self._maintenance.enforce_retention(),
            self._maintenance.keep_checking_disk(),
            self._maintenance.keep_checking_database(),
        ):
            self.keep(loop)
        self._dispatcher.wake()

    def keep(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until the deployment ends; if it fails, the deployment fails."""
        return self._background.supervise(loop)

    # Workers

    def add(self, name: str, start: StartWorker) -> WorkerSlot:
        """Add a worker while others run."""
        slot = self._new_slot(name, start)
        self.slots.append(slot)
        self._slot_tasks[slot] = self.keep(slot.run())
        return slot

    def _new_slot(self, name: str, start: StartWorker) -> WorkerSlot:
        return WorkerSlot(name, start, self, self._settings, self._sleep, self._monotonic)

    async def retire(self, slot: WorkerSlot) -> None:
        """Remove a worker: it gets no more jobs and stops when its jobs have ended."""
        slot.retire()
        self._count_workers()
        # Jobs may have waited for this worker, or been withheld from it.
        self._dispatcher.wake()
        await self.wait_until(lambda: not slot.jobs)
        task = self._slot_tasks[slot]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del self._slot_tasks[slot]
        self.slots.remove(slot)
        self._model_requests.on_worker_died(slot)
        for gauge in (self._metrics.memory_bytes, self._metrics.free_bytes):
            gauge.labels(slot.name).set(0)

    def retire_in_background(self, slot: WorkerSlot) -> None:
        """Retire a worker without waiting for it."""
        slot.retire()
        self._background.spawn(self.retire(slot))

    @property
    def active_slots(self) -> list[WorkerSlot]:
        """Slots except those whose worker is being retired."""
        return [slot for slot in self.slots if slot.state != "leaving"]

    async def load(self, model: str) -> None:
        """Load a model on every ready worker."""
        await self._model_requests.ask_all(self.slots, Load(model=model), self._settings.load_s)
        self._requested_models[model] = None

    async def unload(self, model: str) -> None:
        self._requested_models.pop(model, None)
        await self._model_requests.ask_all(self.slots, Unload(model=model), self._settings.load_s)

    @property
    def ready(self) -> bool:
        """Whether a worker can take jobs."""
        return not self._background.failed and any(slot.state == "ready" for slot in self.slots)

    @property
    def is_hopeless(self) -> str | None:
        """Why no worker will ever be ready, or None."""
        if self._background.failed:
            return "it met an internal error; its log holds the traceback"
        if all(slot.state == "given up" for slot in self.slots):
            return (
                f"its workers keep dying: {'; '.join(f'{slot.name}: {slot.problem}' for slot in self.slots)}"
            )
        return None

    async def _kill_hung_workers(self) -> None:
        """Kill workers that hang."""
        while True:
            await asyncio.sleep(min(_HANG_CHECK_S, self._settings.hang_s / 10))
            for slot in self.slots:
                if slot.kill_if_hung():
                    self._metrics.worker_hangs.labels(slot.name).inc()

    def _count_workers(self) -> None:
        self._metrics.workers_ready.set(sum(slot.state == "ready" for slot in self.slots))

    # Jobs

    @property
    def unended(self) -> int:
        """Number of queued and running jobs."""
        counts = self._queue.counts
        return counts.queued + counts.running

    def accepted(self, job: Job) -> None:
        """Announce an enqueued job and wake what depends on it."""
        if job.id not in self._running:
            self.event_bus.publish_change(job)
        self._dispatcher.wake()
        if job.deadline_at is not None:
            self._maintenance.wake()

    def with_live_progress(self, job: Job) -> Job:
        """The job with the progress that its worker last reported."""
        running = self._running.get(job.id)
        return running.with_live_progress() if running and job.state == "running" else job

    async def cancel(self, job_id: str, client: str | None) -> Job:
        """Cancel a job: a queued job at once, a running one at its next step."""
        before = await self._queue.job(job_id, client)
        if before.state in FINAL_STATES:
            return before
        job, ended = await self._queue.request_cancel(job_id, client)
        if ended:
            self._results.publish(job)
        elif running := self._running.get(job_id):
            running.stop_wanted = True
            await running.stop()
        return self.with_live_progress(job)

    async def _on_overdue(self, job: Job) -> None:
        self._results.publish(job)
        if running := self._running.get(job.id):
            running.stop_wanted = True
            await running.stop()

    def _job_changed(self, job: Job) -> None:
        if job.state == "queued":
            self._dispatcher.wake()
        self.positions.wake()
        self.event_bus.publish_change(job)

    def _previews_changed(self, job_id: str, wanted: bool) -> None:
        running = self._running.get(job_id)
        if running is not None and running.sent:
            self._background.spawn(running.slot.send(Watch(job_id=job_id, previews=wanted)))

    def _current_events(self) -> Iterator[JobEvent]:
        return self._worker_events.current_events()

    # Messages from workers

    def on_message(self, slot: WorkerSlot, message: FromWorker, attachments: list[bytes]) -> None:
        match message:
            case Evaluated():
                self._worker_events.on_evaluated(slot, message)
            case Stepped() | NodeNews() | Finished() | WorkflowFinished() | Failed() | Stopped():
                self._worker_events.on_job_message(slot, message, attachments)
            case Hello():
                self._count_workers()
                for model in self._requested_models:
                    self._background.spawn(slot.send(Load(model=model)))
                self._on_change()
            case Stage():
                # The slot's heartbeat has already counted it.
                pass
            case _:
                self._model_requests.on_message(slot, message)
                if isinstance(message, Models):
                    self._metrics.memory_bytes.labels(slot.name).set(message.memory_bytes)
                    self._metrics.free_bytes.labels(slot.name).set(message.free_bytes)

    async def on_worker_died(self, slot: WorkerSlot, jobs: list[str]) -> None:
        self._model_requests.on_worker_died(slot)
        self._count_workers()
        self._changed.set()
        if slot.state == "restarting":
            self._metrics.worker_restarts.labels(slot.name).inc()
        self._worker_events.on_worker_died(jobs)

    def _on_change(self) -> None:
        self._changed.set()
        self._dispatcher.wake()

    # Shutdown

    @property
    def draining(self) -> bool:
        return self._dispatcher.draining

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on jobs or workers holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def free(self, *, models: bool, results: bool) -> None:
        """Make every worker unload its models and drop cached node results, without waiting for it."""
        for slot in [slot for slot in self.slots if slot.state == "ready"]:
            for loaded in slot.models if models else ():
                await slot.send(Unload(model=loaded.name))
            if results:
                await slot.send(ForgetResults())

    async def drain(self, seconds: float) -> None:
        """Dispatch no more jobs; after `seconds`, stop the running ones and queue them again."""
        self._dispatcher.draining = True
        if not await self._idle_within(seconds):
            for running in self._running:
                await running.stop()
            await self._idle_within(self._settings.stop_s)

    async def _idle_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.wait_until(lambda: not self._running and not self._background)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop the workers; requeue their jobs for the next start."""
        self._dispatcher.draining = True
        await self._background.close(self._settings.stop_s)
        self._running.clear()
        try:
            await self._queue.requeue_all()
        except UnavailableError as error:
            _log.error("running jobs could not be requeued; the next start will: %s", error)
        self.subscriptions.close()
        self.event_bus.close()
