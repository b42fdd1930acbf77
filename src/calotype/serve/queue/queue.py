"""The durable queue of a deployment. Belongs to one event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from calotype.core.errors import NotFoundError
from calotype.serve.queue.blob_store import is_blob_name
from calotype.serve.queue.clock import Clock
from calotype.serve.queue.deadlines import Deadlines, left_after_restart
from calotype.serve.queue.generated_image import GeneratedImage
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.replacement import damage_folders
from calotype.serve.queue.repository import complete, enqueue, history, record_sizes, reorder, uploads
from calotype.serve.queue.repository.complete import Completion
from calotype.serve.queue.repository.enqueue import EnqueueResult, NewJob
from calotype.serve.queue.repository.rows import find_job
from calotype.serve.queue.store import WorkflowImages, hash_in_thread
from calotype.serve.service import UnavailableError
from calotype.spec.job import FINAL_STATES, Job, JobKind, JobState

_log = logging.getLogger(__name__)

__all__ = ["Clock", "GeneratedImage", "JobQueue"]

_RETRY_UNKNOWN_S, _RETRY_LEAST_S, _RETRY_MOST_S = 5.0, 1.0, 60.0
_MAX_ENDED = 256
_PACE_SAMPLES = 32
"""How many of the latest job ends estimate when queue space becomes free."""


class JobQueue(WorkflowImages):
    """Jobs in a folder locked by this server. Every changing method is on disk when it returns.

    If the disk refuses a change, it raises UnavailableError and has no effect.
    """

    def __init__(self, folder: Path, limits: QueueLimits | None = None, clock: Clock | None = None) -> None:
        """Open or create the queue in `folder`; requeues jobs that were running when it was last used."""
        self.limits = limits or QueueLimits()
        clock = clock or Clock()
        self._deadlines = Deadlines(clock.monotonic)
        self._ends: deque[float] = deque(maxlen=_PACE_SAMPLES)
        self._ended: dict[str, Job] = {}
        """The latest ended jobs, which no longer change and whose images are about to be fetched."""
        self.recovered: tuple[Job, ...] = ()
        """Jobs that were running when the queue was last used."""
        super().__init__(folder, clock)

    def _recover(self, connection: sqlite3.Connection) -> None:
        """Requeue running jobs, remove unreferenced files and restore deadlines."""
        now = self._clock.wall()
        connection.execute("BEGIN IMMEDIATE")
        record_sizes.measure_unknown(connection)
        self.recovered = tuple(complete.put_all_back(connection, self.limits, now, lost=True))
        connection.execute("COMMIT")
        self._files.remove(history.unused(connection, self._files.names()))
        waiting = connection.execute("SELECT * FROM jobs WHERE state = 'queued' AND deadline_s IS NOT NULL")
        for row in waiting.fetchall():
            self._deadlines.add(row["id"], left_after_restart(row["created_at"], row["deadline_s"], now))

    async def known(self, new: NewJob) -> Job | None:
        """The job that was accepted with this idempotency key or id, if any."""
        return await self._read(partial(enqueue.known, new=new))

    async def submit(self, new: NewJob, given: Sequence[bytes] = ()) -> Job:
        """Enqueue a job with its input images, unless its idempotency key is known."""
        return (await self.enqueue(new, given)).job

    async def enqueue(self, new: NewJob, given: Sequence[bytes] = ()) -> EnqueueResult:
        """Enqueue a job; the result says whether it is new."""
        files = await hash_in_thread(sum(map(len, given)), lambda: is_blob_name(given))
        work = partial(
            enqueue.enqueue,
            new=new,
            given={name: len(data) for name, data in files.items()},
            limits=self.limits,
            now=self._clock.wall(),
            retry_after_s=self.retry_after_s(),
        )
        result = await self._with_files(files, self._if_healthy(work))
        job = result.job
        # The deadline of the stored job, which a repeated submission does not change.
        if job.deadline_at is not None and job.state == "queued":
            self._deadlines.add(job.id, job.deadline_at - job.created_at)
        return result

    def retry_after_s(self) -> float:
        """Estimate from the latest job ends when queue space becomes free."""
        if len(self._ends) < 2:
            return _RETRY_UNKNOWN_S
        between = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        return min(max(between, _RETRY_LEAST_S), _RETRY_MOST_S)

    async def claim(self, most: int, *, workflows: int = 0, alone: bool = False) -> list[Job]:
        """Claim the next jobs, which are running from now on; with `alone`, jobs that must run alone."""
        numbers: dict[JobKind, int] = {"pictures": most, "workflow": workflows}
        claim = partial(enqueue.claim, most=numbers, now=self._clock.wall(), alone=alone)
        # A claim lost in a power failure does no harm: the job is queued, and its worker is dead.
        return await self._call(claim, durable=False)

    async def given(self, job: Job) -> dict[str, bytes]:
        """The input images of an unfinished job: `image`, `mask`, or the names that a workflow uses."""
        names = _input_files(job)
        if not names:
            return {}
        return await asyncio.to_thread(
            lambda: {place: self._files.read(name) for place, name in names.items()}
        )

    async def job(self, job_id: str, client: str | None = None) -> Job:
        ended = self._ended.get(job_id)
        if ended is not None and client in (None, ended.client):
            return ended
        try:
            return await self._read(partial(find_job, job_id=job_id, client=client))
        except NotFoundError as error:
            if not self.notices:
                raise
            folders = ", ".join(path.name for path in damage_folders(self.folder))
            raise NotFoundError(
                f"{error}; or its row could not be read from a damaged queue database ({folders})"
            ) from None

    async def jobs(
        self,
        *,
        client: str | None = None,
        state: JobState | None = None,
        kind: JobKind | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Job]:
        """Newest first; `before` is the last id of the previous page."""
        return await self._read(
            partial(history.page, client=client, state=state, kind=kind, limit=limit, before=before)
        )

    async def moved(
        self, published: Mapping[str, int], worth_publishing: Callable[[int, int], bool]
    ) -> list[Job]:
        """Those of these queued jobs whose position has changed enough to publish."""
        return await self._read(
            partial(reorder.moved, published=published, worth_publishing=worth_publishing)
        )

    async def unended(self, kind: JobKind, client: str | None = None) -> int:
        """Number of queued and running jobs of a kind."""
        return await self._read(partial(history.unended, kind=kind, client=client))

    async def move(self, job_id: str, before: str | None, client: str | None = None) -> Job:
        """Move a queued job in front of another, or to the end."""
        return await self._call(partial(reorder.move, job_id=job_id, before=before, client=client))

    async def request_cancel(self, job_id: str, client: str | None = None) -> tuple[Job, bool]:
        """Cancel a queued job; mark a running one, which is canceled once its worker has stopped it or died.

        Returns the job, and whether it has ended by this.
        """
        now = self._clock.wall()
        job, ended = await self._call(partial(complete.ask_to_stop, job_id=job_id, client=client, now=now))
        return (await self._record_end(job) if ended else job), ended

    async def requeue(self, job_ids: Iterable[str], *, lost: bool) -> list[Job]:
        """Requeue jobs that no longer run; `lost` if their worker has died."""
        work = partial(
            complete.put_back, job_ids=list(job_ids), limits=self.limits, now=self._clock.wall(), lost=lost
        )
        return [await self._record_end(job) for job in await self._call(work)]

    async def requeue_all(self) -> list[Job]:
        """Requeue all running jobs before a stop; does not count as a loss."""
        work = partial(complete.put_all_back, limits=self.limits, now=self._clock.wall(), lost=False)
        return [await self._record_end(job) for job in await self._call(work)]

    async def finish(
        self,
        job_id: str,
        pictures: Sequence[GeneratedImage],
        *,
        request: Mapping[str, Any] | None = None,
        steps: tuple[int, int] | None = None,
    ) -> Job | None:
        """Store a job's images and end it; None if it had ended already."""
        size = sum(len(image.data) for image in pictures)
        described = await hash_in_thread(size, lambda: tuple(image.described() for image in pictures))
        files = {record.sha256: image.data for record, image in zip(described, pictures, strict=True)}
        return await self._end(job_id, Completion("done", described, request=request, steps=steps), files)

    async def end(self, job_id: str, completion: Completion) -> Job | None:
        """End a job without new images; None if it had ended already."""
        return await self._end(job_id, completion, {})

    async def fail_overdue(self) -> list[Job]:
        """Fail all jobs whose deadline has passed, and return them."""
        ended: list[Job] = []
        for job_id in self._deadlines.passed():
            try:
                job = await self.end(job_id, complete.OVERDUE)
            except UnavailableError:
                # Return those that have ended, so that they are published; the others are still due.
                if ended:
                    break
                raise
            self._deadlines.drop(job_id)
            if job is not None:
                ended.append(job)
        return ended

    def seconds_to_deadline(self) -> float | None:
        return self._deadlines.seconds_left()

    async def picture(self, job_id: str, index: int, client: str | None = None) -> bytes:
        """The file of a finished image."""
        job = await self.job(job_id, client)
        if not 0 <= index < len(job.pictures):
            raise NotFoundError(
                f"job {job_id} has no image {index}; it is {job.state}, with {len(job.pictures)} images"
            )
        return await self._read_file(job.pictures[index].sha256, f"image {index} of job {job_id}")

    async def delete(self, job_id: str, client: str | None = None) -> None:
        """Delete an ended job, and its images unless another job has the same."""
        files = await self._call(partial(history.forget, job_id=job_id, client=client))
        # Afterwards, as it may have ended just before.
        self._ended.pop(job_id, None)
        await self._remove_unused(files)

    async def delete_expired(self) -> None:
        """Enforce the limits on age and size of the history and the uploads."""
        self._ended.clear()
        forget = partial(history.forget_old, limits=self.limits, now=self._clock.wall())
        while (files := await self._call(forget)) is not None:
            await self._remove_unused(files)
        stale = partial(uploads.forget_old, limits=self.limits, now=self._clock.wall())
        while (files := await self._call(stale)) is not None:
            await self._remove_unused(files)

    async def _end(self, job_id: str, completion: Completion, files: Mapping[str, bytes]) -> Job | None:
        end = partial(complete.end, job_id=job_id, ending=completion, now=self._clock.wall())
        job = await self._with_files(files, end)
        return None if job is None else await self._record_end(job)

    async def _record_end(self, job: Job) -> Job:
        if job.state in FINAL_STATES:
            self._deadlines.drop(job.id)
            self._ends.append(self._clock.monotonic())
            self._ended[job.id] = job
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
            try:
                await self._remove_unused(list(_input_files(job).values()))
            # The job has ended all the same, and waiting clients must get its end.
            except UnavailableError as error:
                _log.warning("files of job %s stay until the next start: %s", job.id, error)
        return job


def _input_files(job: Job) -> dict[str, str]:
    """Names of a job's input files, by field or by the name that its workflow uses."""
    if job.kind == "workflow":
        return dict(job.request["inputs"])
    return {place: file["sha256"] for place in complete.GIVEN if (file := job.request.get(place))}
