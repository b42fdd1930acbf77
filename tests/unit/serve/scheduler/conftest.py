"""A deployment whose workers are puppets: a test says what they say, and sees what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from calotype.serve.ipc.messages import Finished, FromWorker, Hello, LoadedModel, Models, Stepped, Work
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.queue import Clock, JobQueue
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.job import Job, Submission

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
EMOJI = LoadedModel(name="emoji", architecture="emoji", sha256="e" * 64, random=False, bytes=100)
PATIENCE_S = 20.0
"""Nothing here takes long; what does is a failure."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def soon(awaited: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await awaited


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


class Puppet:
    """A worker, its handle and its channel in one."""

    def __init__(self, pid: int) -> None:
        self.pid, self.killed, self.closed = pid, False, False
        self._told: asyncio.Queue[tuple[BaseModel, list[bytes]]] = asyncio.Queue()
        self._says: asyncio.Queue[tuple[FromWorker, list[bytes]] | Exception | None] = asyncio.Queue()
        self._ended = asyncio.Event()

    @property
    def channel(self) -> Puppet:
        return self

    # The server's side.

    async def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None:
        if self._ended.is_set():
            raise ConnectionError("nobody there")
        await self._told.put((message, list(attachments)))

    async def __aiter__(self) -> AsyncIterator[tuple[FromWorker, list[bytes]]]:
        while (said := await self._says.get()) is not None:
            if isinstance(said, Exception):
                raise said
            yield said

    async def close(self) -> None:
        self.closed = True
        self._ended.set()

    def kill(self) -> None:
        self.killed = True
        self.die()

    async def wait(self) -> int:
        await self._ended.wait()
        return -9 if self.killed else 0

    # The test's side.

    def say(self, message: FromWorker, *attachments: bytes) -> None:
        self._says.put_nowait((message, list(attachments)))

    def greet(self, room: int = 2, models: Sequence[LoadedModel] = (EMOJI,)) -> None:
        self.say(Models(models=tuple(models), memory_bytes=1000, free_bytes=400))
        self.say(Hello(pid=self.pid, device="cpu", preset="baseline", precision="fp32", room=room))

    def die(self) -> None:
        self._ended.set()
        self._says.put_nowait(None)

    def stammer(self) -> None:
        self._says.put_nowait(ValueError("a frame was torn"))

    async def told(self, kind: type[M]) -> M:
        """The next message, which must be of this kind."""
        message, self.attachments = await soon(self._told.get())
        assert isinstance(message, kind), message
        return message

    def told_nothing(self) -> bool:
        return self._told.empty()

    def step(self, job_id: str, done: int, total: int = 4, preview: bytes | None = None) -> None:
        previews = [] if preview is None else [preview]
        message = Stepped(job_id=job_id, steps_done=done, steps_total=total, has_preview=preview is not None)
        self.say(message, *previews)

    def finish(self, work: Work, data: bytes = b"picture") -> None:
        request = {**work.request, "width": 64, "height": 64}
        message = Finished(job_id=work.job_id, request=request, widths=(64,), heights=(64,), seeds=(0,))
        self.say(message, data)


class Stage:
    """Where puppets appear when they are started."""

    def __init__(self, greeting: Callable[[Puppet], None] | None) -> None:
        self._greeting, self._started = greeting, asyncio.Queue[Puppet]()
        self.count = 0

    async def start(self) -> Puppet:
        self.count += 1
        puppet = Puppet(1000 + self.count)
        if self._greeting:
            self._greeting(puppet)
        self._started.put_nowait(puppet)
        return puppet

    async def next(self) -> Puppet:
        return await soon(self._started.get())


OpenDeployment = Callable[..., AbstractAsyncContextManager[Deployment]]


@pytest.fixture
def pauses() -> list[float]:
    """What a deployment would have waited for."""
    return []


@pytest.fixture
def deployed(tmp_path: Path, pauses: list[float]) -> OpenDeployment:
    """Opens the same folder each time."""

    async def no_time(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def open_(
        *starts: StartWorker,
        queue: dict[str, Any] | None = None,
        clock: Clock | None = None,
        settings: dict[str, Any] | None = None,
        **more: Any,
    ) -> AsyncIterator[Deployment]:
        jobs = JobQueue(tmp_path, QueueLimits.model_validate(queue or {}), clock)
        chosen = DeploymentSettings.model_validate({"models": ("emoji",), **(settings or {})})
        workers = {f"worker{number}": start for number, start in enumerate(starts)}
        deployment = Deployment(chosen, jobs, workers, **{"sleep": no_time, **more})
        async with deployment:
            yield deployment

    return open_


def asking(prompt: str = "an apple", **knobs: Any) -> Submission:
    request = {name: knobs.pop(name) for name in list(knobs) if name in GenerateRequest.model_fields}
    return Submission(request=GenerateRequest.parse({"prompt": prompt, "steps": 4, **request}), **knobs)


async def submitted(deployment: Deployment, count: int, **knobs: Any) -> list[Job]:
    return [await deployment.submit(asking(f"p{number}", **knobs), client="ann") for number in range(count)]


def metric(deployment: Deployment, name: str, **labels: str) -> float:
    return deployment.metrics.registry.get_sample_value(name, labels) or 0.0
