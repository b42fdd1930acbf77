"""Records the results of jobs in the queue and publishes them to subscribers.

A result that the disk refuses is not lost: it is retried with growing pauses until the deployment stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from calotype.serve.ipc.messages import Finished
from calotype.serve.metrics import Metrics
from calotype.serve.queue.generated_image import GeneratedImage
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository.complete import Completion
from calotype.serve.scheduler.job_subscriptions import JobSubscriptions
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.worker_slot import Sleep
from calotype.serve.service import UnavailableError
from calotype.spec.job import FINAL_STATES, FailureKind, Job, JobFailure, JobPicture

_log = logging.getLogger(__name__)
T = TypeVar("T")


class ResultRecorder:
    """Writes results; each write is retried until it is on disk."""

    def __init__(
        self,
        queue: JobQueue,
        subscriptions: JobSubscriptions,
        metrics: Metrics,
        settings: DeploymentSettings,
        sleep: Sleep,
    ) -> None:
        self._queue, self._subscriptions, self._metrics = queue, subscriptions, metrics
        self._settings, self._sleep = settings, sleep
        self.pending_retries = 0
        """Results that the disk refuses at the moment and that wait for a retry."""

    async def finish(self, message: Finished, attachments: list[bytes], steps: int) -> None:
        """Store a job's images and end it with all its steps done, even if the last event reported fewer."""
        lengths = {len(attachments), len(message.widths), len(message.heights), len(message.seeds)}
        if len(lengths) != 1:
            text = f"its worker sent {len(attachments)} images but described {len(message.seeds)}"
            await self.end(message.job_id, failed("internal", text))
            return
        pictures = [
            GeneratedImage(*fields)
            for fields in zip(attachments, message.widths, message.heights, message.seeds, strict=True)
        ]
        await self._record(
            message.job_id,
            lambda: self._queue.finish(
                message.job_id, pictures, request=message.request, steps=(steps, steps)
            ),
        )

    async def keep(self, job_id: str, pictures: Sequence[GeneratedImage]) -> tuple[JobPicture, ...] | None:
        """Store images of a running workflow; None if it no longer runs."""
        return await self._retry(job_id, lambda: self._queue.keep(job_id, pictures))

    async def end(self, job_id: str, completion: Completion) -> None:
        """End a job without new images."""
        await self._record(job_id, lambda: self._queue.end(job_id, completion))

    async def requeue(self, job_ids: Iterable[str], *, lost: bool) -> None:
        """Requeue running jobs, or fail those that were lost too often."""
        await asyncio.gather(
            *(self._record(job_id, partial(self._requeue_one, job_id, lost=lost)) for job_id in job_ids)
        )

    async def _requeue_one(self, job_id: str, *, lost: bool) -> Job | None:
        return next(iter(await self._queue.requeue([job_id], lost=lost)), None)

    def publish(self, job: Job) -> None:
        """Publish a job's state; count and log it if it is final."""
        if job.state in FINAL_STATES:
            self._count(job)
            _log.info("job %s: %s", job.id, job.state, extra={"job_id": job.id, "client": job.client})
        self._subscriptions.publish(job)

    async def _record(self, job_id: str, write: Callable[[], Awaitable[Job | None]]) -> None:
        try:
            job = await self._retry(job_id, write)
        # A bug must not leave a job running forever.
        except Exception as error:
            _log.exception("the end of job %s could not be recorded", job_id, extra={"job_id": job_id})
            completion = failed("internal", f"the deployment could not record its result: {error}")
            job = await self._retry(job_id, lambda: self._queue.end(job_id, completion))
        if job is not None:
            self.publish(job)

    async def _retry(self, job_id: str, write: Callable[[], Awaitable[T]]) -> T:
        """The result of `write`, retried until the disk accepts it."""
        pause = self._settings.first_pause_s
        while True:
            try:
                return await write()
            except UnavailableError as error:
                _log.error("the result of job %s is retried: %s", job_id, error, extra={"job_id": job_id})
            self.pending_retries += 1
            try:
                await self._sleep(pause)
            finally:
                self.pending_retries -= 1
            pause = min(2 * pause, self._settings.longest_pause_s)

    def _count(self, job: Job) -> None:
        self._metrics.ended.labels(job.state).inc()
        if job.failure is not None:
            self._metrics.failures.labels(job.failure.kind).inc()
        if job.state == "done":
            self._metrics.images.labels(job.model).inc(len(job.pictures))
            # The wall clock may have jumped.
            self._metrics.job_seconds.observe(max(0.0, (job.ended_at or 0.0) - job.created_at))


def failed(kind: FailureKind, message: str) -> Completion:
    return Completion("failed", failure=JobFailure(kind=kind, message=message))
