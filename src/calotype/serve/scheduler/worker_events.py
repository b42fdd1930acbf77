"""What workers say of their jobs, and what it means for these. Knows nothing of who gets the next one."""

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
    """Passes on how jobs do, and enters how they end."""

    def __init__(
        self,
        running: RunningJobs,
        outcomes: ResultRecorder,
        watchers: JobSubscriptions,
        followers: EventBus,
        errands: BackgroundTasks,
        metrics: Metrics,
        spend: Spend,
    ) -> None:
        self._spend = spend
        self._running, self._outcomes, self._errands = running, outcomes, errands
        self._watchers, self._followers, self._metrics = watchers, followers, metrics

    def listen(self, running: Running) -> WorkflowRun:
        """The ear of a workflow that begins."""
        tell = partial(self._tell_news, running)
        return WorkflowRun(running.job, self._outcomes, tell, self._errands.spawn, self._spend, running.stop)

    def on_evaluated(self, seat: WorkerSlot, message: Evaluated) -> None:
        self._metrics.step_seconds.observe(message.seconds)
        self._metrics.batch_rows.observe(message.rows)
        self._metrics.batch_jobs.observe(message.jobs)
        for job_id, steps in message.steps.items():
            if running := self._running.at(seat, job_id):
                self._stepped(running, steps)

    def on_job_message(self, seat: WorkerSlot, message: OfJob, attachments: list[bytes]) -> None:
        running = self._running.at(seat, message.job_id)
        if running is None:
            return
        match message:
            case Stepped():
                preview = attachments[0] if message.has_preview and attachments else None
                self._stepped(running, (message.steps_done, message.steps_total), preview)
            case NodeNews():
                if running.workflow is not None:
                    running.workflow.hear(message, attachments)
            case Finished():
                self._running.remove(running)
                self._errands.spawn(self._outcomes.finish(message, attachments, running.steps[1]))
            case _:
                self._running.remove(running)
                self._errands.spawn(self._ended(running, message))

    def on_worker_died(self, jobs: Sequence[str]) -> None:
        """Of a worker that had these."""
        gone = [running for job_id in jobs if (running := self._running.get(job_id))]
        for running in gone:
            self._running.remove(running)
        for sent in (True, False):
            these = [running for running in gone if running.sent is sent]
            if these:
                self._errands.spawn(self._lost(these, sent=sent))

    def standing(self) -> Iterator[JobEvent]:
        """What workflows that run have come to."""
        for running in self._running:
            if running.workflow is not None:
                for news in running.workflow.standing():
                    yield JobEvent(running.with_live_progress(), news)

    def _stepped(self, running: Running, steps: tuple[int, int], preview: bytes | None = None) -> None:
        running.steps = steps
        if self._watchers.wants_steps(running.job.id):
            self._watchers.publish(running.with_live_progress(), preview)

    async def _ended(self, running: Running, message: OfEnd) -> None:
        """The end of a job; the next workflow waits for it, so that ends are heard in their order."""
        try:
            await self._enter_end(running, message)
        finally:
            running.seat.workflows.discard(message.job_id)

    async def _enter_end(self, running: Running, message: OfEnd) -> None:
        """Without pictures, or with those that a workflow told of before."""
        job_id, steps = message.job_id, running.steps
        report: WorkflowReport | None = None
        pictures: tuple[JobPicture, ...] = ()
        if running.workflow is not None:
            await running.workflow.settled()
            message = _unless_refused(message, running.workflow.refused)
            report = running.workflow.report(message.node if isinstance(message, Failed) else None)
            pictures = tuple(running.workflow.pictures)
        match message:
            case WorkflowFinished():
                steps = (steps[1], steps[1])
                ending = Completion("done", pictures, steps=steps, report=report)
                await self._outcomes.end(job_id, ending)
            case Failed():
                ending = Completion("failed", pictures, message.failure, steps=steps, report=report)
                await self._outcomes.end(job_id, ending)
            case Stopped() if running.stop_wanted:
                await self._outcomes.end(
                    job_id, Completion("cancelled", pictures, steps=steps, report=report)
                )
            case Stopped():
                # For a drain; or it is over anyhow, because its deadline has passed.
                await self._outcomes.requeue([job_id], lost=False)

    async def _lost(self, gone: Sequence[Running], *, sent: bool) -> None:
        for running in gone:
            if running.workflow is not None:
                await running.workflow.settled()
        await self._outcomes.requeue([running.job.id for running in gone], lost=sent)

    def _tell_news(self, running: Running, news: NodeNews, preview: bytes | None) -> None:
        """Of a workflow that a worker runs, or has just ended."""
        running.steps = (news.nodes_done, news.nodes_total)
        job = running.with_live_progress()
        self._followers.publish(JobEvent(job, news, preview))
        if self._running.still(running):
            self._watchers.publish(job, preview if preview is not None and preview.startswith(_PNG) else None)


def _unless_refused(message: OfEnd, refused: NodeFailure | None) -> OfEnd:
    """What its worker says of a workflow's end, or what it has done too much of before."""
    if refused is None:
        return message
    text = f"node {refused.node} ({refused.node_class}): {refused.message}"
    failure = JobFailure(kind="bad_request", message=text)
    return Failed(job_id=message.job_id, failure=failure, node=refused)
