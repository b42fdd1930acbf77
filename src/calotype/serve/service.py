"""What a deployment does for its interfaces, whichever they are. All methods belong to one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from calotype.core.errors import CalotypeError
from calotype.serve.ipc.messages import LoadedModel, NodeNews
from calotype.spec.job import Job, JobKind, JobNews, JobState, Submission


class QueueFullError(CalotypeError):
    """More work than the deployment takes in; the message says the limit."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class UnavailableError(CalotypeError):
    """The deployment cannot take work now: it drains, or its disk refuses."""


class DamagedPictureError(CalotypeError):
    """A stored image whose file can no longer be read as it was written."""


@dataclass(frozen=True)
class WorkerStatus:
    """One worker as it stands."""

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
    """How far loading has come, or what else it is at that takes long."""
    problem: str | None = None
    """Why the last one died, or could not be started."""
    preset: str | None = None
    """The optimisations it was started with."""
    precision: str | None = None


@dataclass(frozen=True)
class Status:
    """The deployment as it stands."""

    name: str
    ready: bool
    draining: bool
    queued: int
    running: int
    workers: tuple[WorkerStatus, ...]
    problem: str | None = None
    """Why it will do nothing more until it is started again, if that is so."""
    refusal: str | None = None
    """Why its queue accepts no jobs now: its disk refuses writes, or its database is damaged or missing."""
    notices: tuple[str, ...] = ()
    """Databases that were damaged, and what became of their jobs; as long as the damaged files are kept."""


@dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job: it changed its state, or one of its nodes went on."""

    job: Job
    news: NodeNews | None = None
    preview: bytes | None = None
    """A small JPEG or PNG."""


class Service(Protocol):
    """What goes wrong is a CalotypeError: of a request, a name, memory, a full queue, a closed door."""

    async def submit(
        self, submission: Submission, *, client: str, image: bytes | None = None, mask: bytes | None = None
    ) -> Job:
        """Accept a job: it is on disk when this returns. A known idempotency key answers with its job."""
        ...

    async def job(self, job_id: str, *, client: str | None = None) -> Job:
        """A job as it stands; with `client`, only if it is that client's."""
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
        """Ask for a stop: a queued job ends at once, a running one at its next step; an ended one stays."""
        ...

    async def move(self, job_id: str, before: str | None, *, client: str | None = None) -> Job:
        """Put a waiting job in front of another, or behind all: of that client's, or of everybody's."""
        ...

    async def delete(self, job_id: str, *, client: str | None = None) -> None:
        """Forget an ended job and its pictures."""
        ...

    async def picture(self, job_id: str, index: int, *, client: str | None = None) -> bytes:
        """The PNG file of a finished picture."""
        ...

    def watch(
        self, job_id: str, *, previews: bool = False, client: str | None = None
    ) -> AsyncIterator[JobNews]:
        """The job as it is, then each change, up to its end. A slow reader misses steps, never the end."""
        ...

    def poll_preview(self, job_id: str) -> bytes | None:
        """What a running job looked like last; nothing at first, as asking has it made for some seconds."""
        ...

    def follow(self, *, client: str | None = None) -> AbstractContextManager[AsyncIterator[JobEvent]]:
        """Whatever happens to jobs from here on; first what workflows that run have come to.

        A slow reader misses steps; one that is far behind is left, and has to look again.
        """
        ...

    async def wait(self, job_id: str, *, client: str | None = None) -> Job:
        """The job once it has ended."""
        ...

    async def models(self) -> Sequence[LoadedModel]: ...

    async def load_model(self, model: str) -> Sequence[LoadedModel]: ...

    async def unload_model(self, model: str) -> Sequence[LoadedModel]: ...

    async def free(self, *, models: bool, results: bool) -> None:
        """Give memory back: all models once no job uses them, and what workflows' nodes made."""
        ...

    def status(self) -> Status: ...
