"""The Service that interfaces call, over a queue and workers. Belongs to one event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, Self

from calotype.core.errors import CalotypeError
from calotype.serve.ipc.messages import LoadedModel
from calotype.serve.metrics import Metrics
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository.enqueue import EnqueueResult, NewJob
from calotype.serve.scheduler.admission import Admission, FindModel, Fits
from calotype.serve.scheduler.heartbeat import Monotonic
from calotype.serve.scheduler.replica_set import ReplicaCount, ReplicaSet
from calotype.serve.scheduler.scheduler import Scheduler
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.serve.scheduler.worker_slot import Sleep
from calotype.serve.service import JobEvent, Status, UnavailableError
from calotype.spec.job import FINAL_STATES, Job, JobKind, JobNews, JobState, Submission

_log = logging.getLogger(__name__)


class Quotas(Protocol):
    """Each client's quotas; `calotype.serve.api_keys.ApiKeys` implements it."""

    def max_queued(self, client: str) -> int | None: ...

    def spend(self, client: str, images: int) -> None: ...

    def refund(self, client: str, images: int) -> None: ...


class Deployment:
    """Accepts and runs jobs. Call `start` first, and in the end `drain` or `close`; both close the queue."""

    def __init__(
        self,
        settings: DeploymentSettings,
        queue: JobQueue,
        workers: Mapping[str, StartWorker],
        *,
        metrics: Metrics | None = None,
        quotas: Quotas | None = None,
        find_model: FindModel | None = None,
        fits: Fits | None = None,
        sleep: Sleep = asyncio.sleep,
        monotonic: Monotonic = time.monotonic,
        size: ReplicaCount | None = None,
    ) -> None:
        """`workers`: one for each device, by display name; with `size`, one kind that scales up and down."""
        self.settings, self.metrics = settings, metrics or Metrics()
        self._queue, self._quotas = queue, quotas
        self._admission = Admission(settings, find_model, fits)
        self._scheduler = Scheduler(
            queue, workers, settings, self.metrics, sleep=sleep, monotonic=monotonic, spend=self._spend
        )
        self._replicas = (
            None
            if size is None
            else ReplicaSet(self._scheduler, next(iter(workers.values())), size, sleep=sleep)
        )
        self._closing: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start workers and continue with the queued jobs; `status` says when one is ready."""
        await self._scheduler.start()
        if self._replicas is not None:
            self._scheduler.keep(self._replicas.run())

    async def update(self, models: tuple[str, ...], start: StartWorker, size: ReplicaCount) -> None:
        """Replace the workers one at a time by those of another kind, while jobs are accepted and run.

        Until it has finished, a request that names no model uses the old first model.
        """
        assert self._replicas is not None, "only workers of one kind can be replaced by those of another"
        await self._replicas.roll(start, size)
        self.settings = self.settings.model_copy(update={"models": models})
        self._admission = self._admission.of(self.settings)

    async def drain(self, seconds: float | None = None) -> None:
        """Accept no more jobs, give running jobs `seconds` to end, stop the rest and close."""
        await self._scheduler.drain(self.settings.drain_s if seconds is None else seconds)
        await self.close()

    async def close(self) -> None:
        """Stop at once; unfinished jobs wait for the next start."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        # A cancelled caller must not cancel the close; the next caller waits for the same one.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._scheduler.close()
        await self._queue.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(
        self, submission: Submission, *, client: str, image: bytes | None = None, mask: bytes | None = None
    ) -> Job:
        """Accept a job: it is on disk when this returns. A known idempotency key answers with its job."""
        try:
            return await self._submit(submission, client, image, mask)
        except CalotypeError as error:
            self.metrics.refused.labels(type(error).__name__).inc()
            raise

    async def _submit(
        self, submission: Submission, client: str, image: bytes | None, mask: bytes | None
    ) -> Job:
        self._check_open()
        given = {place: data for place, data in (("image", image), ("mask", mask)) if data is not None}
        request = submission.request
        if given:
            request = await asyncio.to_thread(self._admission.checked, request, given)
        else:
            request = self._admission.checked(request, given)
        new = NewJob(
            client=client,
            model=self._admission.model_of(submission.model, self._loaded()),
            model_asked=submission.model is not None,
            request=request.as_dict(),
            preset=submission.preset,
            priority=submission.priority,
            deadline_s=submission.deadline_s,
            idempotency_key=submission.idempotency_key,
            cost=request.count * request.steps,
        )
        try:
            self._admission.check_memory(request, new.model, self.status().workers)
            return await self.accept(new, list(given.values()), request.count)
        except CalotypeError:
            # A job that was accepted before is returned, whatever limit would refuse it now.
            known = await self._queue.known(new) if new.idempotency_key is not None else None
            if known is None:
                raise
            return self._scheduler.with_live_progress(known)

    async def accept(self, new: NewJob, given: Sequence[bytes], images: int) -> Job:
        """Enqueue a checked job, if the client's quotas allow so many images."""
        self._check_open()
        limit = self._quotas.max_queued(new.client) if self._quotas else None
        result = await self._within_quota(replace(new, max_queued=limit), given, images)
        if not result.new:
            return self._scheduler.with_live_progress(result.job)
        self.metrics.accepted.inc()
        # The only log line with both ids: the request's, added by the formatter, and the job's.
        about = {"job_id": result.job.id, "client": new.client}
        _log.info("job %s: accepted", result.job.id, extra=about)
        self._scheduler.accepted(result.job)
        return result.job

    async def _within_quota(self, new: NewJob, given: Sequence[bytes], images: int) -> EnqueueResult:
        if self._quotas is None:
            return await self._queue.enqueue(new, given)
        self._quotas.spend(new.client, images)
        accepted = False
        try:
            result = await self._queue.enqueue(new, given)
            accepted = result.new
        finally:
            if not accepted:
                self._quotas.refund(new.client, images)
        return result

    def _spend(self, client: str, images: int) -> None:
        if self._quotas is not None:
            self._quotas.spend(client, images)

    def _check_open(self) -> None:
        if self._scheduler.draining:
            raise UnavailableError(f"deployment {self.settings.name!r} is stopping and accepts no more jobs")
        if reason := self._scheduler.is_hopeless:
            raise UnavailableError(f"deployment {self.settings.name!r} cannot run jobs: {reason}")

    async def job(self, job_id: str, *, client: str | None = None) -> Job:
        return self._scheduler.with_live_progress(await self._queue.job(job_id, client))

    async def jobs(
        self,
        *,
        client: str | None = None,
        state: JobState | None = None,
        kind: JobKind | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[Job]:
        jobs = await self._queue.jobs(client=client, state=state, kind=kind, limit=limit, before=before)
        return [self._scheduler.with_live_progress(job) for job in jobs]

    async def cancel(self, job_id: str, *, client: str | None = None) -> Job:
        return await self._scheduler.cancel(job_id, client)

    async def move(self, job_id: str, before: str | None, *, client: str | None = None) -> Job:
        job = await self._queue.move(job_id, before, client)
        self._scheduler.positions.wake()
        self._scheduler.event_bus.publish(JobEvent(job))
        return job

    async def delete(self, job_id: str, *, client: str | None = None) -> None:
        await self._queue.delete(job_id, client)

    async def picture(self, job_id: str, index: int, *, client: str | None = None) -> bytes:
        return await self._queue.picture(job_id, index, client)

    async def watch(
        self, job_id: str, *, previews: bool = False, client: str | None = None
    ) -> AsyncGenerator[JobNews, None]:
        # Subscribe before reading the job, so that no change is lost in between.
        with self._scheduler.subscriptions.subscribe(job_id, previews=previews) as subscription:
            job = await self.job(job_id, client=client)
            subscription.position = job.position
            yield JobNews(job=job)
            if job.state in FINAL_STATES:
                return
            async for news in subscription.events():
                yield news

    def poll_preview(self, job_id: str) -> bytes | None:
        return self._scheduler.subscriptions.poll_preview(job_id)

    def follow(self, *, client: str | None = None) -> AbstractContextManager[AsyncIterator[JobEvent]]:
        return self._scheduler.event_bus.subscribe(client)

    async def wait(self, job_id: str, *, client: str | None = None) -> Job:
        with self._scheduler.subscriptions.subscribe(job_id, steps=False) as subscription:
            # A caller that has just submitted the job need not read its state from disk.
            if client is not None or not self._scheduler.event_bus.expect_end(job_id):
                job = await self.job(job_id, client=client)
                if job.state in FINAL_STATES:
                    return job
            async for news in subscription.events():
                job = news.job
            return job

    async def models(self) -> Sequence[LoadedModel]:
        return self._loaded()

    async def load_model(self, model: str) -> Sequence[LoadedModel]:
        self._check_open()
        await self._scheduler.load(self._admission.model_of(model, self._loaded()))
        return self._loaded()

    async def unload_model(self, model: str) -> Sequence[LoadedModel]:
        self._check_open()
        await self._scheduler.unload(self._admission.model_of(model, self._loaded()))
        return self._loaded()

    async def free(self, *, models: bool, results: bool) -> None:
        self._check_open()
        await self._scheduler.free(models=models, results=results)

    def status(self) -> Status:
        counts = self._queue.counts
        return Status(
            name=self.settings.name,
            ready=self._scheduler.ready and not self._scheduler.draining and self._queue.refusal is None,
            draining=self._scheduler.draining,
            queued=counts.queued,
            running=counts.running,
            problem=self._scheduler.is_hopeless or self._queue.broken,
            refusal=self._queue.refusal,
            notices=self._queue.notices,
            workers=tuple(slot.status() for slot in self._scheduler.slots),
        )

    def _loaded(self) -> list[LoadedModel]:
        """Every model that a worker has loaded, under any preset."""
        loaded = {model.sha256: model for slot in self._scheduler.slots for model in slot.models}
        return [model.model_copy(update={"preset": None}) for model in loaded.values()]
