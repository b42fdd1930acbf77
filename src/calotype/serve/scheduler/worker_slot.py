"""A place for one worker: whoever sits there, what it has, and the next one when it dies.

Knows nothing of queues, nor of what the messages about jobs mean.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, Protocol

from pydantic import BaseModel

from calotype.serve.ipc.messages import (
    Failed,
    Finished,
    FromWorker,
    Hello,
    LoadedModel,
    Loading,
    ModelFailed,
    Models,
    Stage,
    Stopped,
    UnsendableError,
    WorkflowFinished,
)
from calotype.serve.scheduler.heartbeat import Heartbeat, Monotonic
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.worker_protocol import StartWorker, WorkerHandle
from calotype.serve.service import WorkerStatus

_log = logging.getLogger(__name__)

KILLED_S = 10.0
"""What a killed worker has to end in; one that waits for its device in the kernel may never."""
LONG_LIFE_S = 60.0
"""A worker that was ready for so long did not die of its start."""

HOPELESS = ("bad_request", "not_found", "bad_model_file")
"""Why a first worker's models cannot be loaded, when the next one would say the same."""

SlotState = Literal["starting", "ready", "leaving", "restarting", "given up"]
Sleep = Callable[[float], Awaitable[None]]


class SlotListener(Protocol):
    """Who hears what happens at a seat."""

    def on_message(self, seat: WorkerSlot, message: FromWorker, attachments: list[bytes]) -> None: ...

    async def on_worker_died(self, seat: WorkerSlot, jobs: list[str]) -> None:
        """Its worker has gone, and these were its jobs."""
        ...


class WorkerSlot:
    """One worker's place."""

    def __init__(
        self,
        name: str,
        start: StartWorker,
        news: SlotListener,
        settings: DeploymentSettings,
        sleep: Sleep = asyncio.sleep,
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        self.name, self._start, self._news, self._settings, self._sleep = name, start, news, settings, sleep
        self.state: SlotState = "starting"
        self.hello: Hello | None = None
        self.models: tuple[LoadedModel, ...] = ()
        self.jobs: set[str] = set()
        self.workflows: set[str] = set()
        """Those of its jobs that are workflows."""
        self.alone: str | None = None
        """The job that has this worker for itself."""
        self.restarts = 0
        self.problem: str | None = None
        self._memory: Models | None = None
        self._loading: str | None = None
        self._handle: WorkerHandle | None = None
        self._useful = self._blames = self._leaving = False
        self._lived = self._refused = False
        """Whether any worker was ever ready here, and whether the last one was told what cannot be."""
        self._pulse = Heartbeat(settings, monotonic)
        self._hearing = asyncio.timeout(None)
        self._hung = False

    def retire(self) -> None:
        """No more jobs for this worker, and no other after it."""
        self._leaving, self.state = True, "leaving"

    def assign(self, job_id: str, *, workflow: bool) -> None:
        """It has this job from here on."""
        if not self.jobs:
            self._pulse.expect()
        self.jobs.add(job_id)
        if workflow:
            self.workflows.add(job_id)

    def kill_if_hung(self) -> bool:
        """Look whether its worker has been silent for too long, and end it then."""
        if self._handle is None or self._handle.pid is None:
            # A cluster may take any time to find a place for it.
            self._pulse.expect()
            return False
        hang = self._pulse.hang() if self.jobs or self.hello is None else None
        if hang is None or self._hung:
            return False
        _log.error("worker %s with %d jobs is ended: %s", self.name, len(self.jobs), hang)
        self._hung, self.problem = True, hang
        self._handle.kill()
        # One that the kernel cannot end keeps its end of the channel open.
        self._hearing.reschedule(asyncio.get_running_loop().time())
        return True

    @property
    def _taking(self) -> bool:
        return self.hello is not None and self.alone is None and not self._leaving

    @property
    def free_rows(self) -> int:
        """Jobs it would take now that are no workflows."""
        if self.hello is None or not self._taking:
            return 0
        return max(0, self.hello.room - len(self.jobs - self.workflows))

    @property
    def workflow_room(self) -> int:
        """One workflow at a time: the others wait where they can be moved and cancelled."""
        return 1 if self._taking and not self.workflows else 0

    def holds(self, model: str, preset: str | None = None) -> bool:
        own = self.hello.preset if self.hello else None
        wanted = None if preset == own else preset
        return any(model in (held.name, held.sha256) and held.preset == wanted for held in self.models)

    def status(self) -> WorkerStatus:
        return WorkerStatus(
            name=self.name,
            state=self.state,
            pid=self._handle.pid if self._handle else None,
            device=self.hello.device if self.hello else None,
            jobs=len(self.jobs),
            restarts=self.restarts,
            models=self.models,
            memory_bytes=self._memory.memory_bytes if self._memory else None,
            free_bytes=self._memory.free_bytes if self._memory else None,
            loading=self._loading,
            problem=self.problem,
            preset=self.hello.preset if self.hello else None,
            precision=self.hello.precision if self.hello else None,
        )

    async def send(self, message: BaseModel, attachments: list[bytes] | None = None) -> None:
        """To the worker, if there is one; one that cannot be spoken to is ended.

        An UnsendableError is not the worker's fault, which goes on.
        """
        handle = self._handle
        if handle is None:
            return
        try:
            async with asyncio.timeout(self._settings.send_s):
                await handle.channel.send(message, attachments or [])
        except UnsendableError:
            raise
        # Whatever else it is: a worker that did not get this must not live on as if it had.
        except Exception as error:
            self.problem = f"it could not be spoken to: {type(error).__name__} {error}"
            handle.kill()

    async def run(self) -> None:
        """Keep a worker here until this is cancelled, or the one that leaves has died.

        Or until too many have died before any was ready. Where one was, what is wrong may pass: a device
        that is reset is there again after a while.
        """
        deaths = culprits = 0
        while True:
            self.state, self._useful, self._blames = "starting", False, False
            await self._live()
            jobs = sorted(self.jobs)
            self.jobs.clear()
            self.workflows.clear()
            # A job that had it for itself has killed it; when many such jobs in a row do, it is not theirs.
            deaths = 0 if self._useful or self._blames else deaths + 1
            culprits = 0 if self._useful else culprits + self._blames
            in_a_row = max(deaths, culprits)
            given_up = in_a_row >= self._settings.max_deaths or (self._refused and not self._lived)
            if not self._leaving:
                self.state = "given up" if given_up else "restarting"
            await self._news.on_worker_died(self, jobs)
            if self._leaving:
                return
            if given_up:
                _log.error(
                    "worker %s is given up: %d in a row died without having done anything; the last: %s",
                    self.name,
                    in_a_row,
                    self.problem,
                )
                if not self._lived:
                    return
            pause = self._settings.rest_s if given_up else self._pause_s(in_a_row)
            _log.warning("worker %s died (%s); the next starts in %.1f s", self.name, self.problem, pause)
            self.restarts += 1
            await self._sleep(pause)

    def _pause_s(self, deaths: int) -> float:
        return min(self._settings.first_pause_s * 2 ** max(0, deaths - 1), self._settings.longest_pause_s)

    async def _live(self) -> None:
        """One worker from its start to its end, however that comes."""
        ready_at: float | None = None
        self._hung = self._refused = False
        self._pulse.start()
        try:
            self._handle = await self._start()
            async with asyncio.timeout(None) as self._hearing:
                async for message, attachments in self._handle.channel:
                    if isinstance(message, Hello):
                        ready_at = time.monotonic()
                    self._note(message)
                    self._news.on_message(self, message, attachments)
        # What a worker sends, or how it fails to start, must never end the server.
        except Exception as error:
            if not self._hung:
                self.problem = f"{type(error).__name__}: {error}"
        finally:
            # Its end may take a while; nobody is to give it more.
            self.hello = None
            if self.state == "ready":
                self.state = "restarting"
            status = await self._end()
            if status is not None and self.problem is None:
                self.problem = f"it ended with status {status}"
            self._useful |= ready_at is not None and time.monotonic() - ready_at >= LONG_LIFE_S
            self._blames = self.alone is not None
            self.models, self._memory, self._loading, self.alone = (), None, None, None

    def _note(self, message: FromWorker) -> None:
        self._pulse.beat(message, at_work=bool(self.jobs))
        match message:
            case Hello():
                self.hello, self._loading, self.problem, self._lived = message, None, None, True
                if not self._leaving:
                    self.state = "ready"
                _log.info("worker %s is ready on %s", self.name, message.device)
            case Models():
                self.models, self._memory, self._loading = message.models, message, None
            case Loading():
                self._loading = f"{message.label} {message.done}/{message.total}"
            case Stage():
                self._loading = message.label
            case ModelFailed() if self.hello is None:
                self.problem = f"model {message.model!r}: {message.failure.message}"
                self._refused = message.failure.kind in HOPELESS
            case Finished() | WorkflowFinished() | Failed() | Stopped():
                self._useful = True
            case _:
                pass

    async def _end(self) -> int | None:
        """See the worker out: by itself if it will, in the end by force."""
        handle, self._handle = self._handle, None
        if handle is None:
            return None
        with suppress(Exception):
            async with asyncio.timeout(self._settings.stop_s):
                await handle.channel.close()
        for patience_s in (self._settings.stop_s, KILLED_S):
            try:
                async with asyncio.timeout(patience_s):
                    return await handle.wait()
            except TimeoutError:
                handle.kill()
        _log.error("worker %s (process %s) does not end even when it is killed", self.name, handle.pid)
        return None
