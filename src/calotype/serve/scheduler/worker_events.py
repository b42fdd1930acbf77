"""Handles workers' messages about jobs: publishes progress and records how jobs end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from calotype.serve.ipc.messages import (
    Evaluated,
    Failed,
    Finished,
    NodeNews,
    Stepped,
    Stopped,
    WorkflowFinished,
)
from calotype.serve.metrics import Metrics
from calotype.serve.queue.repository.complete import Completion
from calotype.serve.scheduler.event_bus import EventBus
from calotype.serve.scheduler.job_results import ResultRecorder
from calotype.serve.scheduler.job_subscriptions import JobSubscriptions
from calotype.serve.scheduler.running_jobs import Running, RunningJobs
from calotype.serve.scheduler.task_group import BackgroundTasks
from calotype.serve.scheduler.worker_slot import WorkerSlot
from calotype.serve.service import JobEvent
from calotype.serve.workflow.run import Spend, WorkflowRun
from calotype.spec.job import JobFailure, JobPicture, NodeFailure, WorkflowReport

OfEnd = WorkflowFinished | Failed | Stopped
OfJob = Stepped | NodeNews | Finished | OfEnd
_PNG = b"\x89PNG"


class WorkerEventHandler:
    """Publishes the progress of jobs and records their results."""

    def __init__(
        self,
        running: RunningJobs,
        results: ResultRecorder,
        subscriptions: JobSubscriptions,
        event_bus: EventBus,
        background: BackgroundTasks,
        metrics: Metrics,
        spend: Spend,
    ) -> None:
        self._spend = spend
        self._running, self._results, self._background = running, results, background
        self._subscriptions, self._event_bus, self._metrics = subscriptions, event_bus, metrics

    def listen(self, running: Running) -> WorkflowRun:
        """The receiver of a new workflow's events."""
        publish = partial(self._publish_node_event, running)
        return WorkflowRun(
            running.job, self._results, publish, self._background.spawn, self._spend, running.stop
        )

    def on_evaluated(self, slot: WorkerSlot, message: Evaluated) -> None:
        self._metrics.step_seconds.observe(message.seconds)
        self._metrics.batch_rows.observe(message.rows)
        self._metrics.batch_jobs.observe(message.jobs)
        for job_id, steps in message.steps.items():
            if running := self._running.at(slot, job_id):
                self._on_step(running, steps)

    def on_job_message(self, slot: WorkerSlot, message: OfJob, attachments: list[bytes]) -> None:
        running = self._running.at(slot, message.job_id)
        if running is None:
            return
        match message:
            case Stepped():
                preview = attachments[0] if message.has_preview and attachments else None
                self._on_step(running, (message.steps_done, message.steps_total), preview)
            case NodeNews():
                if running.workflow is not None:
                    running.workflow.hear(message, attachments)
            case Finished():
                self._running.remove(running)
                self._background.spawn(self._results.finish(message, attachments, running.steps[1]))
            case _:
                self._running.remove(running)
                self._background.spawn(self._on_end(running, message))

    def on_worker_died(self, jobs: Sequence[str]) -> None:
        """Requeue the jobs of a dead worker."""
        lost = [running for job_id in jobs if (running := self._running.get(job_id))]
        for running in lost:
            self._running.remove(running)
        for sent in (True, False):
            batch = [running for running in lost if running.sent is sent]
            if batch:
                self._background.spawn(self._on_lost(batch, sent=sent))

    def current_events(self) -> Iterator[JobEvent]:
        """Events that describe the current state of running workflows."""
        for running in self._running:
            if running.workflow is not None:
                for event in running.workflow.standing():
                    yield JobEvent(running.with_live_progress(), event)

    def _on_step(self, running: Running, steps: tuple[int, int], preview: bytes | None = None) -> None:
        running.steps = steps
        if self._subscriptions.wants_steps(running.job.id):
            self._subscriptions.publish(running.with_live_progress(), preview)

    async def _on_end(self, running: Running, message: OfEnd) -> None:
        """Record the end of a job; the worker's next workflow waits for it, so that ends arrive in order."""
        try:
            await self._record_end(running, message)
        finally:
            running.slot.workflows.discard(message.job_id)

    async def _record_end(self, running: Running, message: OfEnd) -> None:
        """Record an end without images, or with those that a workflow announced before."""
        job_id, steps = message.job_id, running.steps
        report: WorkflowReport | None = None
        pictures: tuple[JobPicture, ...] = ()
        if running.workflow is not None:
            await running.workflow.settled()
            message = _end_or_refusal(message, running.workflow.refused)
            report = running.workflow.report(message.node if isinstance(message, Failed) else None)
            pictures = tuple(running.workflow.pictures)
        match message:
            case WorkflowFinished():
                steps = (steps[1], steps[1])
                completion = Completion("done", pictures, steps=steps, report=report)
                await self._results.end(job_id, completion)
            case Failed():
                completion = Completion("failed", pictures, message.failure, steps=steps, report=report)
                await self._results.end(job_id, completion)
            case Stopped() if running.stop_wanted:
                await self._results.end(job_id, Completion("cancelled", pictures, steps=steps, report=report))
            case Stopped():
                # It was stopped for a drain, or its deadline has passed and it has ended already.
                await self._results.requeue([job_id], lost=False)

    async def _on_lost(self, lost: Sequence[Running], *, sent: bool) -> None:
        for running in lost:
            if running.workflow is not None:
                await running.workflow.settled()
        await self._results.requeue([running.job.id for running in lost], lost=sent)

    def _publish_node_event(self, running: Running, news: NodeNews, preview: bytes | None) -> None:
        """Publish an event of a running workflow, or of one that has just ended."""
        running.steps = (news.nodes_done, news.nodes_total)
        job = running.with_live_progress()
        self._event_bus.publish(JobEvent(job, news, preview))
        if self._running.still(running):
            self._subscriptions.publish(
                job, preview if preview is not None and preview.startswith(_PNG) else None
            )


def _end_or_refusal(message: OfEnd, refused: NodeFailure | None) -> OfEnd:
    """A workflow's end as its worker reports it, or the failure of a node that exceeded a limit before."""
    if refused is None:
        return message
    text = f"node {refused.node} ({refused.node_class}): {refused.message}"
    failure = JobFailure(kind="bad_request", message=text)
    return Failed(job_id=message.job_id, failure=failure, node=refused)
