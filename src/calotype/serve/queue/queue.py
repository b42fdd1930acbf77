"""The durable queue of a deployment. Belongs to one event loop; knows nothing of workers."""

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
_PACE_OF = 32
"""Latest ends that say how fast places become free."""


class JobQueue(WorkflowImages):
    """Jobs in a folder that no other server has. Every method that changes something is on disk at its end.

    Whatever the disk refuses is an UnavailableError, and has not happened.
    """

    def __init__(self, folder: Path, limits: QueueLimits | None = None, clock: Clock | None = None) -> None:
        """Open, or begin, the queue in `folder`; what was running when it was left is queued again."""
        self.limits = limits or QueueLimits()
        chosen = clock or Clock()
        self._deadlines = Deadlines(chosen.monotonic)
        self._ends: deque[float] = deque(maxlen=_PACE_OF)
        self._ended: dict[str, Job] = {}
        """The latest, which do not change any more and whose pictures are about to be fetched."""
        self.recovered: tuple[Job, ...] = ()
        """Those that were running when the queue was left."""
        super().__init__(folder, chosen)

    def _put_in_order(self, connection: sqlite3.Connection) -> None:
        """Queue again what was running, remove files that belong to nobody, and take up deadlines."""
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
        """The job that an idempotency key stands for already."""
        return await self._read(partial(enqueue.known, new=new))

    async def submit(self, new: NewJob, given: Sequence[bytes] = ()) -> Job:
        """Accept a job with the pictures that belong to it, unless it was before."""
        return (await self.enqueue(new, given)).job

    async def enqueue(self, new: NewJob, given: Sequence[bytes] = ()) -> EnqueueResult:
        """The same, and whether it was."""
        files = await hash_in_thread(sum(map(len, given)), lambda: is_blob_name(given))
        enter = partial(
            enqueue.enqueue,
            new=new,
            given={name: len(data) for name, data in files.items()},
            limits=self.limits,
            now=self._clock.wall(),
            retry_after_s=self.retry_after_s(),
        )
        entered = await self._with_files(files, self._if_sound(enter))
        job = entered.job
        # The job's own, which the same key sent again does not change.
        if job.deadline_at is not None and job.state == "queued":
            self._deadlines.add(job.id, job.deadline_at - job.created_at)
        return entered

    def retry_after_s(self) -> float:
        """When a place may be free, by how fast jobs have been ending."""
        if len(self._ends) < 2:
            return _RETRY_UNKNOWN_S
        between = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        return min(max(between, _RETRY_LEAST_S), _RETRY_MOST_S)

    async def claim(self, most: int, *, workflows: int = 0, alone: bool = False) -> list[Job]:
        """The next jobs, which run from here on. With `alone`: those that are to run by themselves."""
        numbers: dict[JobKind, int] = {"pictures": most, "workflow": workflows}
        claim = partial(enqueue.claim, most=numbers, now=self._clock.wall(), alone=alone)
        # A claim that a loss of power takes back has done no harm: the job waits, and its worker is gone.
        return await self._call(claim, durable=False)

    async def given(self, job: Job) -> dict[str, bytes]:
        """The pictures that belong to an unfinished job: `image`, `mask`, or a workflow's own names."""
        names = _given(job)
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
            kept = ", ".join(path.name for path in damage_folders(self.folder))
            raise NotFoundError(
                f"{error}; or its row could not be read from a damaged queue database ({kept})"
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
        """Newest first; `before` is the last id of the page before."""
        return await self._read(
            partial(history.page, client=client, state=state, kind=kind, limit=limit, before=before)
        )

    async def moved(self, told: Mapping[str, int], is_news: Callable[[int, int], bool]) -> list[Job]:
        """Those of these waiting jobs whose place is news to who was told the one beside it."""
        return await self._read(partial(reorder.moved, told=told, is_news=is_news))

    async def unended(self, kind: JobKind, client: str | None = None) -> int:
        """How many jobs of a kind wait or run."""
        return await self._read(partial(history.unended, kind=kind, client=client))

    async def move(self, job_id: str, before: str | None, client: str | None = None) -> Job:
        """Put a waiting job in front of another, or behind all."""
        return await self._call(partial(reorder.move, job_id=job_id, before=before, client=client))

    async def request_cancel(self, job_id: str, client: str | None = None) -> tuple[Job, bool]:
        """A queued job is cancelled; a running one is once its worker has left it, or died.

        Answers with the job, and whether it has ended by this.
        """
        now = self._clock.wall()
        job, ended = await self._call(partial(complete.ask_to_stop, job_id=job_id, client=client, now=now))
        return (await self._noted(job) if ended else job), ended

    async def requeue(self, job_ids: Iterable[str], *, lost: bool) -> list[Job]:
        """Running jobs that nobody runs any more; `lost` if whoever did has died."""
        back = partial(
            complete.put_back, job_ids=list(job_ids), limits=self.limits, now=self._clock.wall(), lost=lost
        )
        return [await self._noted(job) for job in await self._call(back)]

    async def requeue_all(self) -> list[Job]:
        """Everything that is running, because whoever runs it is about to stop; no loss for anybody."""
        back = partial(complete.put_all_back, limits=self.limits, now=self._clock.wall(), lost=False)
        return [await self._noted(job) for job in await self._call(back)]

    async def finish(
        self,
        job_id: str,
        pictures: Sequence[GeneratedImage],
        *,
        request: Mapping[str, Any] | None = None,
        steps: tuple[int, int] | None = None,
    ) -> Job | None:
        """Keep a job's pictures and end it; None if it had ended already."""
        size = sum(len(made.data) for made in pictures)
        described = await hash_in_thread(size, lambda: tuple(made.described() for made in pictures))
        files = {said.sha256: made.data for said, made in zip(described, pictures, strict=True)}
        return await self._end(job_id, Completion("done", described, request=request, steps=steps), files)

    async def end(self, job_id: str, how: Completion) -> Job | None:
        """End a job without new pictures; None if it had ended already."""
        return await self._end(job_id, how, {})

    async def fail_overdue(self) -> list[Job]:
        """End all jobs whose deadline has passed; answers with these."""
        ended: list[Job] = []
        for job_id in self._deadlines.passed():
            try:
                job = await self.end(job_id, complete.OVERDUE)
            except UnavailableError:
                # Those that have ended are to be told of; the others are still due.
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
        """The file of a finished picture."""
        job = await self.job(job_id, client)
        if not 0 <= index < len(job.pictures):
            raise NotFoundError(
                f"job {job_id} has no picture {index}; it is {job.state}, with {len(job.pictures)}"
            )
        return await self._read_file(job.pictures[index].sha256, f"picture {index} of job {job_id}")

    async def delete(self, job_id: str, client: str | None = None) -> None:
        """Forget an ended job, and its pictures unless another job has the same."""
        files = await self._call(partial(history.forget, job_id=job_id, client=client))
        # Afterwards, as it may have ended only just before.
        self._ended.pop(job_id, None)
        await self._remove_unused(files)

    async def delete_expired(self) -> None:
        """Keep the history and the uploads within the limits of age and size."""
        self._ended.clear()
        forget = partial(history.forget_old, limits=self.limits, now=self._clock.wall())
        while (files := await self._call(forget)) is not None:
            await self._remove_unused(files)
        stale = partial(uploads.forget_old, limits=self.limits, now=self._clock.wall())
        while (files := await self._call(stale)) is not None:
            await self._remove_unused(files)

    async def _end(self, job_id: str, how: Completion, files: Mapping[str, bytes]) -> Job | None:
        end = partial(complete.end, job_id=job_id, ending=how, now=self._clock.wall())
        job = await self._with_files(files, end)
        return None if job is None else await self._noted(job)

    async def _noted(self, job: Job) -> Job:
        if job.state in FINAL_STATES:
            self._deadlines.drop(job.id)
            self._ends.append(self._clock.monotonic())
            self._ended[job.id] = job
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
            try:
                await self._remove_unused(list(_given(job).values()))
            # It has ended all the same, and whoever waits for that has to be told.
            except UnavailableError as error:
                _log.warning("files of job %s stay up to the next start: %s", job.id, error)
        return job


def _given(job: Job) -> dict[str, str]:
    """Names of the files that came with a job, by what they are."""
    if job.kind == "workflow":
        return dict(job.request["inputs"])
    return {place: said["sha256"] for place in complete.GIVEN if (said := job.request.get(place))}
