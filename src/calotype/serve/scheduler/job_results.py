"""What became of jobs, kept in the queue and told to whoever looks. Knows nothing of workers.

An outcome that the disk refuses is not lost: it is tried again, later each time, until the deployment stops.
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
    """Enters outcomes, each until it is on disk."""

    def __init__(
        self,
        queue: JobQueue,
        watchers: JobSubscriptions,
        metrics: Metrics,
        settings: DeploymentSettings,
        sleep: Sleep,
    ) -> None:
        self._queue, self._watchers, self._metrics = queue, watchers, metrics
        self._settings, self._sleep = settings, sleep
        self.refused = 0
        """Outcomes that the disk does not take at the moment."""

    async def finish(self, message: Finished, attachments: list[bytes], steps: int) -> None:
        """Keep a job's pictures; it has done all its steps, whether or not the last news said so."""
        numbers = {len(attachments), len(message.widths), len(message.heights), len(message.seeds)}
        if len(numbers) != 1:
            text = f"its worker sent {len(attachments)} pictures and spoke of {len(message.seeds)}"
            await self.end(message.job_id, failed("internal", text))
            return
        pictures = [
            GeneratedImage(*made)
            for made in zip(attachments, message.widths, message.heights, message.seeds, strict=True)
        ]
        await self._enter(
            message.job_id,
            lambda: self._queue.finish(
                message.job_id, pictures, request=message.request, steps=(steps, steps)
            ),
        )

    async def keep(self, job_id: str, pictures: Sequence[GeneratedImage]) -> tuple[JobPicture, ...] | None:
        """Keep what a running workflow has made so far; None if it runs no more."""
        return await self._tried(job_id, lambda: self._queue.keep(job_id, pictures))

    async def end(self, job_id: str, ending: Completion) -> None:
        """End a job without new pictures."""
        await self._enter(job_id, lambda: self._queue.end(job_id, ending))

    async def requeue(self, job_ids: Iterable[str], *, lost: bool) -> None:
        """Queue running jobs again, or end those that have been lost too often."""
        await asyncio.gather(
            *(self._enter(job_id, partial(self._put_back, job_id, lost=lost)) for job_id in job_ids)
        )

    async def _put_back(self, job_id: str, *, lost: bool) -> Job | None:
        return next(iter(await self._queue.requeue([job_id], lost=lost)), None)

    def publish(self, job: Job) -> None:
        """Count and pass on how a job stands now."""
        if job.state in FINAL_STATES:
            self._count(job)
            _log.info("job %s: %s", job.id, job.state, extra={"job_id": job.id, "client": job.client})
        self._watchers.publish(job)

    async def _enter(self, job_id: str, enter: Callable[[], Awaitable[Job | None]]) -> None:
        try:
            job = await self._tried(job_id, enter)
        # A mistake of ours must not leave a job running for ever.
        except Exception as error:
            _log.exception("job %s could not be ended", job_id, extra={"job_id": job_id})
            ending = failed("internal", f"the deployment could not keep what came of it: {error}")
            job = await self._tried(job_id, lambda: self._queue.end(job_id, ending))
        if job is not None:
            self.publish(job)

    async def _tried(self, job_id: str, enter: Callable[[], Awaitable[T]]) -> T:
        """What `enter` answers, once the disk lets it."""
        pause = self._settings.first_pause_s
        while True:
            try:
                return await enter()
            except UnavailableError as error:
                _log.error("what came of job %s is tried again: %s", job_id, error, extra={"job_id": job_id})
            self.refused += 1
            try:
                await self._sleep(pause)
            finally:
                self.refused -= 1
            pause = min(2 * pause, self._settings.longest_pause_s)

    def _count(self, job: Job) -> None:
        self._metrics.ended.labels(job.state).inc()
        if job.failure is not None:
            self._metrics.failures.labels(job.failure.kind).inc()
        if job.state == "done":
            self._metrics.images.labels(job.model).inc(len(job.pictures))
            # The time of day may have jumped.
            self._metrics.job_seconds.observe(max(0.0, (job.ended_at or 0.0) - job.created_at))


def failed(kind: FailureKind, message: str) -> Completion:
    return Completion("failed", failure=JobFailure(kind=kind, message=message))
