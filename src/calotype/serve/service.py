"""The protocol that interfaces call. All methods belong to one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from calotype.core.errors import CalotypeError
from calotype.serve.ipc.messages import LoadedModel, NodeNews
from calotype.spec.job import Job, JobKind, JobNews, JobState, Submission


class QueueFullError(CalotypeError):
    """More jobs than the deployment accepts; the message states the limit."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class UnavailableError(CalotypeError):
    """The deployment cannot accept jobs now: it drains, or its disk refuses writes."""


class DamagedPictureError(CalotypeError):
    """A stored image whose file is damaged or cannot be read."""


@dataclass(frozen=True)
class WorkerStatus:
    """The current state of one worker."""

    name: str
    state: str
    """starting, ready, restarting, or given up."""
    pid: int | None
    device: str | None
    jobs: int
    restarts: int
    models: tuple[LoadedModel, ...]
    memory_bytes: int | None
    free_bytes: int | None
    loading: str | None = None
    """Progress of loading, or the label of another long stage."""
    problem: str | None = None
    """Why the last process died or could not be started."""
    preset: str | None = None
    """The preset it was started with."""
    precision: str | None = None


@dataclass(frozen=True)
class Status:
    """The current state of the deployment."""

    name: str
    ready: bool
    draining: bool
    queued: int
    running: int
    workers: tuple[WorkerStatus, ...]
    problem: str | None = None
    """Why it runs no more jobs until it is restarted, or None."""
    refusal: str | None = None
    """Why its queue accepts no jobs now: its disk refuses writes, or its database is damaged or missing."""
    notices: tuple[str, ...] = ()
    """Damaged databases and what became of their jobs; listed as long as the damaged files exist."""


@dataclass(frozen=True)
class JobEvent:
    """A job has changed its state, or one of its nodes has made progress."""

    job: Job
    news: NodeNews | None = None
    preview: bytes | None = None
    """A small JPEG or PNG."""


class Service(Protocol):
    """Errors are CalotypeErrors: a bad request, an unknown name, too little memory, a full queue."""

    async def submit(
        self, submission: Submission, *, client: str, image: bytes | None = None, mask: bytes | None = None
    ) -> Job:
        """Accept a job; it is on disk when this returns. A known idempotency key returns its job."""
        ...

    async def job(self, job_id: str, *, client: str | None = None) -> Job:
        """The current state of a job; with `client`, only if it is that client's."""
        ...

    async def jobs(
        self,
        *,
        client: str | None = None,
        state: JobState | None = None,
        kind: JobKind | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[Job]:
        """Newest first; `before` is a job's id, or the cursor of `calotype.serve.pagination`."""
        ...

    async def cancel(self, job_id: str, *, client: str | None = None) -> Job:
        """Cancel a job: a queued one ends at once, a running one at its next step; an ended one stays."""
        ...

    async def move(self, job_id: str, before: str | None, *, client: str | None = None) -> Job:
        """Move a queued job before another, or to the end; with `client`, among that client's jobs."""
        ...

    async def delete(self, job_id: str, *, client: str | None = None) -> None:
        """Delete an ended job and its images."""
        ...

    async def picture(self, job_id: str, index: int, *, client: str | None = None) -> bytes:
        """The PNG file of a finished image."""
        ...

    def watch(
        self, job_id: str, *, previews: bool = False, client: str | None = None
    ) -> AsyncIterator[JobNews]:
        """The job's current state, then each change. A slow reader misses steps, never the end."""
        ...

    def poll_preview(self, job_id: str) -> bytes | None:
        """The latest preview of a running job; None at first, as a call enables previews for some seconds."""
        ...

    def follow(self, *, client: str | None = None) -> AbstractContextManager[AsyncIterator[JobEvent]]:
        """Events of all jobs from now on, after events for the current state of running workflows.

        A slow reader misses steps; a reader that is too far behind is dropped and has to subscribe again.
        """
        ...

    async def wait(self, job_id: str, *, client: str | None = None) -> Job:
        """Wait until the job has ended."""
        ...

    async def models(self) -> Sequence[LoadedModel]: ...

    async def load_model(self, model: str) -> Sequence[LoadedModel]: ...

    async def unload_model(self, model: str) -> Sequence[LoadedModel]: ...

    async def free(self, *, models: bool, results: bool) -> None:
        """Release memory: unload all models once no job uses them, and drop cached node results."""
        ...

    def status(self) -> Status: ...
