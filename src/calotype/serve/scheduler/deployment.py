"""A deployment as its interfaces see it: the Service, over a queue and workers. Belongs to one event loop."""

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
    """What each client may ask for; `calotype.serve.api_keys.ApiKeys` is one."""

    def max_queued(self, client: str) -> int | None: ...

    def spend(self, client: str, pictures: int) -> None: ...

    def refund(self, client: str, pictures: int) -> None: ...


class Deployment:
    """Accepts jobs and has them done. `start` it first; `drain` or `close` it, and the queue, in the end."""

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
        """`workers`: one for each device, by a name for people; with `size`, of one kind, more or fewer."""
        self.settings, self.metrics = settings, metrics or Metrics()
        self._queue, self._quotas = queue, quotas
        self._admission = Admission(settings, find_model, fits)
        self._dispatcher = Scheduler(
            queue, workers, settings, self.metrics, sleep=sleep, monotonic=monotonic, spend=self._spend
        )
        self._crew = (
            None
            if size is None
            else ReplicaSet(self._dispatcher, next(iter(workers.values())), size, sleep=sleep)
        )
        self._closing: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start workers and go on with what waits; `status` says when one is ready."""
        await self._dispatcher.start()
        if self._crew is not None:
            self._dispatcher.keep(self._crew.run())

    async def update(self, models: tuple[str, ...], start: StartWorker, size: ReplicaCount) -> None:
        """Replace the workers one at a time by those of another kind, while jobs are accepted and done.

        Where a request names no model, the old first one is meant up to the end of it.
        """
        assert self._crew is not None, "only workers of one kind can be replaced by those of another"
        await self._crew.roll(start, size)
        self.settings = self.settings.model_copy(update={"models": models})
        self._admission = self._admission.of(self.settings)

    async def drain(self, seconds: float | None = None) -> None:
        """Accept nothing more, let what runs end within `seconds`, stop the rest and close."""
        await self._dispatcher.drain(self.settings.drain_s if seconds is None else seconds)
        await self.close()

    async def close(self) -> None:
        """Stop at once; unfinished jobs wait for the next start."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        # Somebody in haste may leave; the next one who asks waits for the same.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._dispatcher.close()
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
            # What was accepted before is answered, whatever more would be refused now.
            known = await self._queue.known(new) if new.idempotency_key is not None else None
            if known is None:
                raise
            return self._dispatcher.with_live_progress(known)

    async def accept(self, new: NewJob, given: Sequence[bytes], pictures: int) -> Job:
        """Queue what was looked at, if this client may ask for so many pictures."""
        self._check_open()
        bound = self._quotas.max_queued(new.client) if self._quotas else None
        entered = await self._within_quota(replace(new, max_queued=bound), given, pictures)
        if not entered.new:
            return self._dispatcher.with_live_progress(entered.job)
        self.metrics.accepted.inc()
        # The one line that has both names: the request's, by itself, and the job's.
        about = {"job_id": entered.job.id, "client": new.client}
        _log.info("job %s: accepted", entered.job.id, extra=about)
        self._dispatcher.accepted(entered.job)
        return entered.job

    async def _within_quota(self, new: NewJob, given: Sequence[bytes], pictures: int) -> EnqueueResult:
        if self._quotas is None:
            return await self._queue.enqueue(new, given)
        self._quotas.spend(new.client, pictures)
        accepted = False
        try:
            entered = await self._queue.enqueue(new, given)
            accepted = entered.new
        finally:
            if not accepted:
                self._quotas.refund(new.client, pictures)
        return entered

    def _spend(self, client: str, pictures: int) -> None:
        if self._quotas is not None:
            self._quotas.spend(client, pictures)

    def _check_open(self) -> None:
        if self._dispatcher.draining:
            raise UnavailableError(f"deployment {self.settings.name!r} stops and accepts nothing more")
        if reason := self._dispatcher.is_hopeless:
            raise UnavailableError(f"deployment {self.settings.name!r} cannot work: {reason}")

    async def job(self, job_id: str, *, client: str | None = None) -> Job:
        return self._dispatcher.with_live_progress(await self._queue.job(job_id, client))

    async def jobs(
        self,
        *,
        client: str | None = None,
        state: JobState | None = None,
        kind: JobKind | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[Job]:
        found = await self._queue.jobs(client=client, state=state, kind=kind, limit=limit, before=before)
        return [self._dispatcher.with_live_progress(job) for job in found]

    async def cancel(self, job_id: str, *, client: str | None = None) -> Job:
        return await self._dispatcher.cancel(job_id, client)

    async def move(self, job_id: str, before: str | None, *, client: str | None = None) -> Job:
        job = await self._queue.move(job_id, before, client)
        self._dispatcher.line.wake()
        self._dispatcher.followers.publish(JobEvent(job))
        return job

    async def delete(self, job_id: str, *, client: str | None = None) -> None:
        await self._queue.delete(job_id, client)

    async def picture(self, job_id: str, index: int, *, client: str | None = None) -> bytes:
        return await self._queue.picture(job_id, index, client)

    async def watch(
        self, job_id: str, *, previews: bool = False, client: str | None = None
    ) -> AsyncGenerator[JobNews, None]:
        # Looking begins before the job is read, so that nothing falls between.
        with self._dispatcher.watchers.subscribe(job_id, previews=previews) as watcher:
            job = await self.job(job_id, client=client)
            watcher.place = job.position
            yield JobNews(job=job)
            if job.state in FINAL_STATES:
                return
            async for news in watcher.events():
                yield news

    def poll_preview(self, job_id: str) -> bytes | None:
        return self._dispatcher.watchers.poll_preview(job_id)

    def follow(self, *, client: str | None = None) -> AbstractContextManager[AsyncIterator[JobEvent]]:
        return self._dispatcher.followers.subscribe(client)

    async def wait(self, job_id: str, *, client: str | None = None) -> Job:
        with self._dispatcher.watchers.subscribe(job_id, steps=False) as watcher:
            # Who has just handed it in needs not look how it stands.
            if client is not None or not self._dispatcher.followers.expect_end(job_id):
                job = await self.job(job_id, client=client)
                if job.state in FINAL_STATES:
                    return job
            async for news in watcher.events():
                job = news.job
            return job

    async def models(self) -> Sequence[LoadedModel]:
        return self._loaded()

    async def load_model(self, model: str) -> Sequence[LoadedModel]:
        self._check_open()
        await self._dispatcher.load(self._admission.model_of(model, self._loaded()))
        return self._loaded()

    async def unload_model(self, model: str) -> Sequence[LoadedModel]:
        self._check_open()
        await self._dispatcher.unload(self._admission.model_of(model, self._loaded()))
        return self._loaded()

    async def free(self, *, models: bool, results: bool) -> None:
        self._check_open()
        await self._dispatcher.free(models=models, results=results)

    def status(self) -> Status:
        counts = self._queue.counts
        return Status(
            name=self.settings.name,
            ready=self._dispatcher.ready and not self._dispatcher.draining and self._queue.refusal is None,
            draining=self._dispatcher.draining,
            queued=counts.queued,
            running=counts.running,
            problem=self._dispatcher.is_hopeless or self._queue.broken,
            refusal=self._queue.refusal,
            notices=self._queue.notices,
            workers=tuple(seat.status() for seat in self._dispatcher.seats),
        )

    def _loaded(self) -> list[LoadedModel]:
        """Every model that some worker has, with whatever preset."""
        held = {model.sha256: model for seat in self._dispatcher.seats for model in seat.models}
        return [model.model_copy(update={"preset": None}) for model in held.values()]
