"""A deployment in memory that behaves as a real one: jobs wait, run, fail, are cancelled; queues fill up.

What a job does is said by its prompt: `hold` stops it at its second step until it is released or cancelled,
`fail KIND` makes it fail so, `bug` makes the service itself fail. Everything else is made at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from PIL import Image

from calotype.core.errors import DoesNotFitError, NotFoundError, Problem, RequestError
from calotype.serve.ipc.messages import LoadedModel, SamplingValues
from calotype.serve.pagination import parse_cursor
from calotype.serve.service import JobEvent, QueueFullError, Status, UnavailableError, WorkerStatus
from calotype.spec.job import (
    FINAL_STATES,
    FailureKind,
    Job,
    JobFailure,
    JobKind,
    JobNews,
    JobPicture,
    JobState,
    Submission,
)

MOST_PIXELS = 64 * 1024 * 1024
MOST_STEPS = 500
OWN_SIDE = 64


def png(width: int = 16, height: int = 16, colour: tuple[int, ...] = (200, 30, 30)) -> bytes:
    """A small picture file."""
    buffer = io.BytesIO()
    Image.new("RGB" if len(colour) == 3 else "RGBA", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


PREVIEW = png(8, 8)


class StandInKeys:
    """Three clients, and one whose quota is used up."""

    def __init__(self) -> None:
        self.names = {f"{name}-key": name for name in ("alice", "bob", "root", "spent")}

    def all(self) -> Sequence[str]:
        return list(self.names.values())

    def exist(self) -> bool:
        return True

    def problem(self) -> str | None:
        return None

    def check(self, token: str) -> str | None:
        if token == "spent-key":
            raise QueueFullError("'spent' may request 5 images a minute", retry_after_s=7.2)
        return self.names.get(token)


class StandIn:
    """One queue, one worker, everything in memory."""

    def __init__(self, *, most_queued: int = 1000, most_pixels: int = MOST_PIXELS) -> None:
        self.most_queued = most_queued
        self.most_pixels = most_pixels
        self.draining = False
        self.loaded = {name: _model(name) for name in ("emoji", "sd15")}
        self.given: dict[str, tuple[bytes | None, bytes | None]] = {}
        self._jobs: dict[str, Job] = {}
        self._files: dict[str, list[bytes]] = {}
        self._watchers: defaultdict[str, list[asyncio.Queue[JobNews | None]]] = defaultdict(list)
        self._stopping: dict[str, asyncio.Event] = {}
        self._released = asyncio.Event()
        self._holding: asyncio.Queue[Job] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    async def submit(
        self, submission: Submission, *, client: str, image: bytes | None = None, mask: bytes | None = None
    ) -> Job:
        known = [
            job
            for job in self._jobs.values()
            if submission.idempotency_key
            and (job.client, job.idempotency_key) == (client, submission.idempotency_key)
        ]
        if known:
            if known[0].request != submission.request.as_dict():
                raise RequestError([Problem("idempotency_key", "stands for something else")])
            return known[0]
        self._check(submission)
        now = time.time()
        number = next(self._numbers)
        job = Job(
            id=f"job-{number:06d}",
            sequence=number,
            client=client,
            state="queued",
            model=submission.model or "emoji",
            request=submission.request.as_dict(),
            priority=submission.priority,
            position=0,
            created_at=now,
            started_at=None,
            ended_at=None,
            deadline_at=now + submission.deadline_s if submission.deadline_s else None,
            steps_done=0,
            steps_total=submission.request.steps,
            attempts=0,
            pictures=(),
            failure=None,
            idempotency_key=submission.idempotency_key,
            preset=submission.preset,
        )
        self._jobs[job.id] = job
        self._stopping[job.id] = asyncio.Event()
        self.given[job.id] = (image, mask)
        task = asyncio.get_running_loop().create_task(self._run(job.id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def job(self, job_id: str, *, client: str | None = None) -> Job:
        job = self._jobs.get(job_id)
        if job is None or client not in (None, job.client):
            raise NotFoundError(f"there is no job {job_id!r}")
        return job

    async def jobs(
        self,
        *,
        client: str | None = None,
        state: JobState | None = None,
        kind: JobKind | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[Job]:
        last = None
        if before:
            last = parse_cursor(before) or (await self.job(before, client=client)).sequence
        newest = sorted(self._jobs.values(), key=lambda job: job.id, reverse=True)
        wanted = [
            job
            for job in newest
            if client in (None, job.client)
            and state in (None, job.state)
            and kind in (None, job.kind)
            and (last is None or job.sequence < last)
        ]
        return wanted[:limit]

    async def cancel(self, job_id: str, *, client: str | None = None) -> Job:
        job = await self.job(job_id, client=client)
        self._stopping[job_id].set()
        return job

    async def move(self, job_id: str, before: str | None, *, client: str | None = None) -> Job:
        job = await self.job(job_id, client=client)
        if before is not None:
            await self.job(before, client=client)
        if job.state != "queued":
            raise RequestError([Problem("id", f"job {job_id} is {job.state}; only waiting jobs move")])
        return job

    @contextmanager
    def follow(self, *, client: str | None = None) -> Iterator[AsyncIterator[JobEvent]]:
        """Every job that is there now, and then the end."""

        async def told() -> AsyncIterator[JobEvent]:
            for job in await self.jobs(client=client):
                yield JobEvent(job)

        yield told()

    async def delete(self, job_id: str, *, client: str | None = None) -> None:
        job = await self.job(job_id, client=client)
        if job.state not in FINAL_STATES:
            raise RequestError([Problem("job_id", f"job {job_id} is {job.state}; cancel it first")])
        del self._jobs[job_id]

    async def picture(self, job_id: str, index: int, *, client: str | None = None) -> bytes:
        await self.job(job_id, client=client)
        files = self._files.get(job_id, [])
        if not 0 <= index < len(files):
            raise NotFoundError(f"job {job_id} has {len(files)} pictures")
        return files[index]

    async def watch(
        self, job_id: str, *, previews: bool = False, client: str | None = None
    ) -> AsyncIterator[JobNews]:
        job = await self.job(job_id, client=client)
        news: asyncio.Queue[JobNews | None] = asyncio.Queue()
        self._watchers[job_id].append(news)
        try:
            item: JobNews | None = JobNews(job=job)
            while item is not None:
                yield item if previews else JobNews(job=item.job)
                if item.job.state in FINAL_STATES:
                    return
                item = await news.get()
        finally:
            self._watchers[job_id].remove(news)

    def poll_preview(self, job_id: str) -> bytes | None:
        return PREVIEW if self._jobs[job_id].steps_done else None

    async def wait(self, job_id: str, *, client: str | None = None) -> Job:
        return [item.job async for item in self.watch(job_id, client=client)][-1]

    async def models(self) -> Sequence[LoadedModel]:
        return list(self.loaded.values())

    async def load_model(self, model: str) -> Sequence[LoadedModel]:
        if model not in ("emoji", "sd15", "sdxl"):
            raise NotFoundError(f"there is no model {model!r}")
        self.loaded[model] = _model(model)
        return await self.models()

    async def unload_model(self, model: str) -> Sequence[LoadedModel]:
        if model not in self.loaded:
            raise NotFoundError(f"no model {model!r} is loaded")
        del self.loaded[model]
        return await self.models()

    async def free(self, *, models: bool, results: bool) -> None:
        if models or results:
            self.loaded.clear()

    def status(self) -> Status:
        states = [job.state for job in self._jobs.values()]
        worker = WorkerStatus(
            "cpu-0",
            "ready",
            1234,
            "cpu",
            states.count("running"),
            0,
            tuple(self.loaded.values()),
            2**30,
            2**29,
        )
        queued, running = states.count("queued"), states.count("running")
        return Status("stand-in", not self.draining, self.draining, queued, running, (worker,))

    def release(self) -> None:
        """Let every job go on that is held."""
        self._released.set()
        self._released = asyncio.Event()

    def stop(self) -> None:
        """End all news, as a deployment does that stops."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.put_nowait(None)

    async def holding(self, prompt: str) -> Job:
        """The job of this prompt, once it is held."""
        while (job := await self._holding.get()).request["prompt"] != prompt:
            pass
        return job

    def _check(self, submission: Submission) -> None:
        request = submission.request
        if request.prompt == "bug":
            raise RuntimeError("a secret of the service")
        if submission.model not in (None, *self.loaded):
            raise NotFoundError(f"there is no model {submission.model!r}; known: {', '.join(self.loaded)}")
        if request.steps > MOST_STEPS:
            rule = f"{request.steps} steps, the limit here is {MOST_STEPS}"
            raise RequestError([Problem("request.steps", rule, request.steps)])
        if self.draining:
            raise UnavailableError("the deployment drains; ask another one")
        pixels = (request.width or OWN_SIDE) * (request.height or OWN_SIDE) * request.count
        if pixels > self.most_pixels:
            raise DoesNotFitError(f"{pixels} pixels do not fit into memory, the limit is {self.most_pixels}")
        waiting = sum(job.state not in FINAL_STATES for job in self._jobs.values())
        if waiting >= self.most_queued:
            raise QueueFullError(f"{waiting} jobs wait, the limit is {self.most_queued}", retry_after_s=2.5)

    async def _run(self, job_id: str) -> None:
        job, stopping = self._jobs[job_id], self._stopping[job_id]
        prompt = str(job.request["prompt"])
        await asyncio.sleep(0)
        if not stopping.is_set():
            self._tell(job_id, state="running", started_at=time.time(), attempts=1, position=None)
        for step in range(job.steps_total):
            if prompt.startswith("hold") and step == 2 and not await self._held(job, stopping):
                failure = JobFailure(kind="deadline", message="its time was over")
                self._tell(job_id, state="failed", ended_at=time.time(), failure=failure)
                return
            if stopping.is_set():
                self._tell(job_id, state="cancelled", ended_at=time.time(), position=None)
                return
            self._tell(job_id, preview=PREVIEW, steps_done=step + 1)
            await asyncio.sleep(0)
        if prompt.startswith("fail "):
            failure = JobFailure(
                kind=cast("FailureKind", prompt.removeprefix("fail ")), message="as was asked"
            )
            self._tell(job_id, state="failed", ended_at=time.time(), failure=failure)
            return
        self._finish(job_id)

    async def _held(self, job: Job, stopping: asyncio.Event) -> bool:
        """Wait for release or cancel; False when the deadline comes first."""
        timeout = job.deadline_at - time.time() if job.deadline_at else None
        self._holding.put_nowait(self._jobs[job.id])
        waits = [asyncio.ensure_future(event.wait()) for event in (self._released, stopping)]
        try:
            finished, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(finished)

    def _finish(self, job_id: str) -> None:
        request = self._jobs[job_id].request
        width, height = request["width"] or OWN_SIDE, request["height"] or OWN_SIDE
        seeds = [(request["seed"] + index) % 2**64 for index in range(request["count"])]
        files = [png(width, height, (seed % 256, 0, 0)) for seed in seeds]
        self._files[job_id] = files
        pictures = tuple(
            JobPicture(
                sha256=hashlib.sha256(data).hexdigest(),
                bytes=len(data),
                width=width,
                height=height,
                seed=seed,
            )
            for data, seed in zip(files, seeds, strict=True)
        )
        self._tell(job_id, state="done", ended_at=time.time(), pictures=pictures)

    def _tell(self, job_id: str, preview: bytes | None = None, **changes: Any) -> None:
        self._jobs[job_id] = self._jobs[job_id].model_copy(update=changes)
        for watcher in self._watchers[job_id]:
            watcher.put_nowait(JobNews(job=self._jobs[job_id], preview=preview))


def _model(name: str) -> LoadedModel:
    digest = hashlib.sha256(name.encode()).hexdigest()
    own = SamplingValues(steps=4, cfg=1.0, sampler="euler", schedule="trailing")
    return LoadedModel(name=name, architecture=name, sha256=digest, random=False, bytes=1000, sampling=own)
