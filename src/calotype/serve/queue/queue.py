"""The durable queue of a deployment. Belongs to one event loop; knows nothing of workers."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from filelock import FileLock, Timeout

from calotype.core.errors import NotFoundError
from calotype.serve.queue import ending, entering, history, moving, uploads
from calotype.serve.queue.database import Database, Work
from calotype.serve.queue.deadlines import Deadlines, left_after_restart
from calotype.serve.queue.ending import Ending
from calotype.serve.queue.entering import Claimed, Entered, NewJob
from calotype.serve.queue.files import PictureFiles, name_of, named
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.opening import PICTURES, open_database, unavailable
from calotype.serve.queue.rows import find_job
from calotype.serve.queue.uploads import Upload
from calotype.serve.service import UnavailableError
from calotype.spec.job import FINAL_STATES, Job, JobKind, JobPicture, JobState, PictureFile

LOCK = ".lock"
_RETRY_UNKNOWN_S, _RETRY_LEAST_S, _RETRY_MOST_S = 5.0, 1.0, 60.0
_MOST_ENDED = 256
_PACE_OF = 32
"""Latest ends that say how fast places become free."""

_HASHED_AT_ONCE = 2**18

T = TypeVar("T")


@dataclass(frozen=True)
class Clock:
    """The time of day, for people, and one that cannot jump, for everything else."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class MadePicture:
    """A finished picture as it comes from a worker."""

    data: bytes
    width: int
    height: int
    seed: int | None = None
    file: PictureFile | None = None

    def described(self) -> JobPicture:
        return JobPicture(
            sha256=name_of(self.data),
            bytes=len(self.data),
            width=self.width,
            height=self.height,
            seed=self.seed,
            file=self.file,
        )


class JobQueue:
    """Jobs in a folder that no other server has. Every method that changes something is on disk at its end.

    Whatever the disk refuses is an UnavailableError, and has not happened.
    """

    def __init__(self, folder: Path, limits: QueueLimits | None = None, clock: Clock | None = None) -> None:
        """Open, or begin, the queue in `folder`; what was running when it was left is queued again."""
        self.folder, self.limits, self._clock = folder, limits or QueueLimits(), clock or Clock()
        self._deadlines = Deadlines(self._clock.monotonic)
        self._ends: deque[float] = deque(maxlen=_PACE_OF)
        self._ended: dict[str, Job] = {}
        """The latest, which do not change any more and whose pictures are about to be fetched."""
        with _refusals(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder)
            try:
                connection = open_database(folder)
                self._files = PictureFiles(folder / PICTURES)
                self.recovered = self._recover(connection)
            except BaseException:
                self._lock.release()
                raise
        self._database = Database(connection)

    def _recover(self, connection: sqlite3.Connection) -> tuple[Job, ...]:
        """Bring order into what a crash left; answers with the jobs that were running."""
        now = self._clock.wall()
        try:
            connection.execute("BEGIN")
            recovered = ending.put_all_back(connection, self.limits, now, lost=True)
            connection.execute("COMMIT")
            self._files.remove(history.unused(connection, self._files.names()))
            waiting = connection.execute(
                "SELECT * FROM jobs WHERE state = 'queued' AND deadline_s IS NOT NULL"
            ).fetchall()
        except BaseException:
            connection.close()
            raise
        for row in waiting:
            self._deadlines.add(row["id"], left_after_restart(row["created_at"], row["deadline_s"], now))
        return tuple(recovered)

    async def close(self) -> None:
        """Leave the folder to the next server; running jobs stay running, and are queued again by it."""
        await asyncio.to_thread(self._database.close)
        self._lock.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def known(self, new: NewJob) -> Job | None:
        """The job that an idempotency key stands for already."""
        return await self._call(partial(entering.known, new=new))

    async def submit(self, new: NewJob, given: Sequence[bytes] = ()) -> Job:
        """Accept a job with the pictures that belong to it, unless it was before."""
        return (await self.enter(new, given)).job

    async def enter(self, new: NewJob, given: Sequence[bytes] = ()) -> Entered:
        """The same, and whether it was."""
        files = await _aside(sum(map(len, given)), lambda: named(given))
        enter = partial(
            entering.enter,
            new=new,
            given={name: len(data) for name, data in files.items()},
            limits=self.limits,
            now=self._clock.wall(),
            retry_after_s=self.retry_after_s(),
        )
        entered = await self._with_files(files, enter)
        if new.deadline_s is not None and entered.job.state == "queued":
            self._deadlines.add(entered.job.id, new.deadline_s)
        return entered

    def retry_after_s(self) -> float:
        """When a place may be free, by how fast jobs have been ending."""
        if len(self._ends) < 2:
            return _RETRY_UNKNOWN_S
        between = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        return min(max(between, _RETRY_LEAST_S), _RETRY_MOST_S)

    async def claim(self, most: int, *, workflows: int = 0, alone: bool = False) -> Claimed:
        """The next jobs, which run from here on. With `alone`: those that are to run by themselves."""
        numbers: dict[JobKind, int] = {"pictures": most, "workflow": workflows}
        claim = partial(entering.claim, most=numbers, now=self._clock.wall(), alone=alone)
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

    async def waiting(self) -> tuple[int, int]:
        """How many are queued, and how many of these are to run by themselves."""
        return await self._call(entering.waiting)

    async def job(self, job_id: str, client: str | None = None) -> Job:
        ended = self._ended.get(job_id)
        if ended is not None and client in (None, ended.client):
            return ended
        return await self._call(partial(find_job, job_id=job_id, client=client))

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
        return await self._call(
            partial(history.page, client=client, state=state, kind=kind, limit=limit, before=before)
        )

    async def unended(self, kind: JobKind, client: str | None = None) -> int:
        """How many jobs of a kind wait or run."""
        return await self._call(partial(history.unended, kind=kind, client=client))

    async def move(self, job_id: str, before: str | None, client: str | None = None) -> Job:
        """Put a waiting job in front of another, or behind all."""
        return await self._call(partial(moving.move, job_id=job_id, before=before, client=client))

    async def keep(self, job_id: str, pictures: Sequence[MadePicture]) -> tuple[JobPicture, ...] | None:
        """Keep what a running workflow has made so far, by name; None if it runs no more."""
        size = sum(len(made.data) for made in pictures)
        described = await _aside(size, lambda: tuple(made.described() for made in pictures))
        files = {said.sha256: made.data for said, made in zip(described, pictures, strict=True)}
        kept = await self._with_files(
            files, partial(uploads.name_pictures, job_id=job_id, pictures=described)
        )
        return described if kept else None

    async def upload(
        self, client: str, file: PictureFile, data: bytes, *, overwrite: bool = False
    ) -> PictureFile:
        """Keep a picture for workflows to come; answers with the name it got."""
        name = await _aside(len(data), lambda: name_of(data))
        enter = partial(
            uploads.enter,
            client=client,
            file=file,
            contents=(name, len(data)),
            now=self._clock.wall(),
            overwrite=overwrite,
        )
        chosen, let_go = await self._with_files({name: data}, enter)
        await self._remove_unused(let_go)
        return chosen

    async def uploads(self, client: str | None = None) -> list[Upload]:
        """What a client has given."""
        return await self._call(partial(uploads.listed, client=client))

    async def missing(self, client: str, inputs: Mapping[str, PictureFile]) -> list[str]:
        """Those of a workflow's pictures that are not there, by what it calls them."""
        return await self._call(partial(uploads.missing, client=client, inputs=inputs))

    async def remove_upload(self, client: str, file: PictureFile) -> None:
        """Forget a given picture; jobs that have it keep it."""
        await self._remove_unused(await self._call(partial(uploads.remove, client=client, file=file)))

    async def named(self, file: PictureFile, client: str | None = None) -> bytes:
        """A given picture, or one of a workflow's, by its name."""
        sha256 = await self._call(partial(uploads.sha256_of, client=client, file=file))
        try:
            return await asyncio.to_thread(self._files.read, sha256)
        except FileNotFoundError:
            raise NotFoundError(f"picture {file.filename!r} is gone; somebody removed its file") from None

    async def ask_to_stop(self, job_id: str, client: str | None = None) -> Job:
        """A queued job is cancelled; a running one is once its worker has left it, or died."""
        now = self._clock.wall()
        job = await self._call(partial(ending.ask_to_stop, job_id=job_id, client=client, now=now))
        return await self._noted(job)

    async def put_back(self, job_ids: Iterable[str], *, lost: bool) -> list[Job]:
        """Running jobs that nobody runs any more; `lost` if whoever did has died."""
        back = partial(
            ending.put_back, job_ids=list(job_ids), limits=self.limits, now=self._clock.wall(), lost=lost
        )
        return [await self._noted(job) for job in await self._call(back)]

    async def put_all_back(self) -> list[Job]:
        """Everything that is running, because whoever runs it is about to stop; no loss for anybody."""
        back = partial(ending.put_all_back, limits=self.limits, now=self._clock.wall(), lost=False)
        return [await self._noted(job) for job in await self._call(back)]

    async def finish(
        self,
        job_id: str,
        pictures: Sequence[MadePicture],
        *,
        request: Mapping[str, Any] | None = None,
        steps: tuple[int, int] | None = None,
    ) -> Job | None:
        """Keep a job's pictures and end it; None if it had ended already."""
        size = sum(len(made.data) for made in pictures)
        described = await _aside(size, lambda: tuple(made.described() for made in pictures))
        files = {said.sha256: made.data for said, made in zip(described, pictures, strict=True)}
        return await self._end(job_id, Ending("done", described, request=request, steps=steps), files)

    async def end(self, job_id: str, how: Ending) -> Job | None:
        """End a job without new pictures; None if it had ended already."""
        return await self._end(job_id, how, {})

    async def fail_overdue(self) -> list[Job]:
        """End all jobs whose deadline has passed; answers with these."""
        ended = []
        for job_id in self._deadlines.passed():
            job = await self.end(job_id, ending.OVERDUE)
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
        try:
            return await asyncio.to_thread(self._files.read, job.pictures[index].sha256)
        except FileNotFoundError:
            raise NotFoundError(
                f"picture {index} of job {job_id} is gone; somebody removed its file"
            ) from None

    async def delete(self, job_id: str, client: str | None = None) -> None:
        """Forget an ended job, and its pictures unless another job has the same."""
        self._ended.pop(job_id, None)
        await self._remove_unused(await self._call(partial(history.forget, job_id=job_id, client=client)))

    async def forget_old(self) -> None:
        """Keep the history within the limits of age and size."""
        self._ended.clear()
        forget = partial(history.forget_old, limits=self.limits, now=self._clock.wall())
        while (files := await self._call(forget)) is not None:
            await self._remove_unused(files)
        stale = partial(uploads.forget_old, limits=self.limits, now=self._clock.wall())
        await self._remove_unused(await self._call(stale))

    async def _end(self, job_id: str, how: Ending, files: Mapping[str, bytes]) -> Job | None:
        end = partial(ending.end, job_id=job_id, ending=how, now=self._clock.wall())
        job = await self._with_files(files, end)
        return None if job is None else await self._noted(job)

    async def _noted(self, job: Job) -> Job:
        if job.state in FINAL_STATES:
            self._deadlines.drop(job.id)
            self._ends.append(self._clock.monotonic())
            self._ended[job.id] = job
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]
            await self._remove_unused(list(_given(job).values()))
        return job

    async def _with_files(self, files: Mapping[str, bytes], work: Work[T]) -> T:
        """Bring files to disk, then run what says that they are used; if it does not, they go again."""
        if not files:
            return await self._call(work)
        unused = list(files)
        try:
            with self._files.held(files):
                with _refusals(self.folder):
                    await asyncio.to_thread(self._files.write, files)
                answer, unused = await self._call(lambda c: (work(c), history.unused(c, files)))
            return answer
        finally:
            await self._remove_unused(unused)

    async def _remove_unused(self, names: Sequence[str]) -> None:
        """Done by the thread that makes files used, so that none becomes so in between."""

        def remove(connection: sqlite3.Connection) -> None:
            self._files.remove(history.unused(connection, names))

        if names:
            await self._call(remove)

    async def _call(self, work: Work[T], *, durable: bool = True) -> T:
        with _refusals(self.folder):
            return await self._database.call(work, durable=durable)


def _given(job: Job) -> dict[str, str]:
    """Names of the files that came with a job, by what they are."""
    if job.kind == "workflow":
        return dict(job.request["inputs"])
    return {place: said["sha256"] for place in ending.GIVEN if (said := job.request.get(place))}


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Hash so many bytes in a thread of its own, if that takes longer than to get there."""
    return await asyncio.to_thread(work) if size > _HASHED_AT_ONCE else work()


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError:
        # Ours to put right, nobody else's.
        raise
    except (sqlite3.Error, OSError) as error:
        raise unavailable(folder, error) from error


def _locked(folder: Path) -> FileLock:
    """The folder's lock, which ends with this process, however it ends."""
    # A queue may be opened in one thread and closed in another.
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UnavailableError(
            f"{folder} is in use by another server; stop that one, or choose another folder"
        ) from None
    return lock
