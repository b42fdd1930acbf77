"""Supervises one worker: starts it, tracks its jobs and models, and restarts it when it dies."""

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

KILL_TIMEOUT_S = 10.0
"""How long to wait for a killed worker; one that waits for its device in the kernel may never end."""
STABLE_AFTER_S = 60.0
"""A worker that was ready for this long did not die of its start."""

PERMANENT_FAILURES = ("bad_request", "not_found", "bad_model_file")
"""Failures to load the first models that a restart would only repeat."""

SlotState = Literal["starting", "ready", "leaving", "restarting", "given up"]
Sleep = Callable[[float], Awaitable[None]]


class SlotListener(Protocol):
    """Receives the events of a worker slot."""

    def on_message(self, slot: WorkerSlot, message: FromWorker, attachments: list[bytes]) -> None: ...

    async def on_worker_died(self, slot: WorkerSlot, jobs: list[str]) -> None:
        """The worker has died while it had these jobs."""
        ...


class WorkerSlot:
    """The supervisor of one worker process after another."""

    def __init__(
        self,
        name: str,
        start: StartWorker,
        listener: SlotListener,
        settings: DeploymentSettings,
        sleep: Sleep = asyncio.sleep,
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        self.name, self._start, self._listener, self._settings, self._sleep = (
            name,
            start,
            listener,
            settings,
            sleep,
        )
        self.state: SlotState = "starting"
        self.hello: Hello | None = None
        self.models: tuple[LoadedModel, ...] = ()
        self.jobs: set[str] = set()
        self.workflows: set[str] = set()
        """The workflows among its jobs."""
        self.alone: str | None = None
        """The job that runs alone on this worker."""
        self.restarts = 0
        self.problem: str | None = None
        self._memory: Models | None = None
        self._loading: str | None = None
        self._handle: WorkerHandle | None = None
        self._did_work = self._job_to_blame = self._leaving = False
        self._was_ready = self._cannot_load = False
        """Whether any worker was ever ready here, and whether the last one failed with a permanent error."""
        self._heartbeat = Heartbeat(settings, monotonic)
        self._receive_timeout = asyncio.timeout(None)
        self._hung = False

    def retire(self) -> None:
        """Assign no more jobs and start no other worker after this one."""
        self._leaving, self.state = True, "leaving"

    def assign(self, job_id: str, *, workflow: bool) -> None:
        """Add a job to the worker's jobs."""
        if not self.jobs:
            self._heartbeat.expect()
        self.jobs.add(job_id)
        if workflow:
            self.workflows.add(job_id)

    def kill_if_hung(self) -> bool:
        """Kill the worker if it has been silent for too long; whether it was killed."""
        if self._handle is None or self._handle.pid is None:
            # A cluster may take any time to schedule it.
            self._heartbeat.expect()
            return False
        hang = self._heartbeat.hang() if self.jobs or self.hello is None else None
        if hang is None or self._hung:
            return False
        _log.error("worker %s with %d jobs is killed: %s", self.name, len(self.jobs), hang)
        self._hung, self.problem = True, hang
        self._handle.kill()
        # A worker that the kernel cannot end keeps its end of the channel open.
        self._receive_timeout.reschedule(asyncio.get_running_loop().time())
        return True

    @property
    def _taking(self) -> bool:
        return self.hello is not None and self.alone is None and not self._leaving

    @property
    def free_rows(self) -> int:
        """How many more jobs other than workflows it can take now."""
        if self.hello is None or not self._taking:
            return 0
        return max(0, self.hello.room - len(self.jobs - self.workflows))

    @property
    def workflow_room(self) -> int:
        """One workflow at a time: the others stay in the queue, where they can be moved and cancelled."""
        return 1 if self._taking and not self.workflows else 0

    def holds(self, model: str, preset: str | None = None) -> bool:
        default = self.hello.preset if self.hello else None
        wanted = None if preset == default else preset
        return any(
            model in (loaded.name, loaded.sha256) and loaded.preset == wanted for loaded in self.models
        )

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
        """Send a message if there is a worker; kill a worker that cannot receive it.

        An UnsendableError is the message's fault: the worker stays.
        """
        handle = self._handle
        if handle is None:
            return
        try:
            async with asyncio.timeout(self._settings.send_s):
                await handle.channel.send(message, attachments or [])
        except UnsendableError:
            raise
        # Catch everything: a worker that missed a message must not go on as if it had received it.
        except Exception as error:
            self.problem = f"a message could not be sent to it: {type(error).__name__} {error}"
            handle.kill()

    async def run(self) -> None:
        """Keep a worker running until this is cancelled, or until a retired worker has ended.

        Also returns after too many deaths if no worker was ever ready. If one was ready, the fault may pass,
        for example when a device is reset, so the slot tries again after a pause.
        """
        deaths = job_deaths = 0
        while True:
            self.state, self._did_work, self._job_to_blame = "starting", False, False
            await self._run_worker()
            jobs = sorted(self.jobs)
            self.jobs.clear()
            self.workflows.clear()
            # A job that ran alone is to blame for a death, unless many of them in a row die with it.
            deaths = 0 if self._did_work or self._job_to_blame else deaths + 1
            job_deaths = 0 if self._did_work else job_deaths + self._job_to_blame
            in_a_row = max(deaths, job_deaths)
            given_up = in_a_row >= self._settings.max_deaths or (self._cannot_load and not self._was_ready)
            if not self._leaving:
                self.state = "given up" if given_up else "restarting"
            await self._listener.on_worker_died(self, jobs)
            if self._leaving:
                return
            if given_up:
                _log.error(
                    "worker %s is given up: %d in a row died without doing any work; the last: %s",
                    self.name,
                    in_a_row,
                    self.problem,
                )
                if not self._was_ready:
                    return
            pause = self._settings.rest_s if given_up else self._pause_s(in_a_row)
            _log.warning("worker %s died (%s); the next starts in %.1f s", self.name, self.problem, pause)
            self.restarts += 1
            await self._sleep(pause)

    def _pause_s(self, deaths: int) -> float:
        return min(self._settings.first_pause_s * 2 ** max(0, deaths - 1), self._settings.longest_pause_s)

    async def _run_worker(self) -> None:
        """Run one worker from its start to its end, however it ends."""
        ready_at: float | None = None
        self._hung = self._cannot_load = False
        self._heartbeat.start()
        try:
            self._handle = await self._start()
            async with asyncio.timeout(None) as self._receive_timeout:
                async for message, attachments in self._handle.channel:
                    if isinstance(message, Hello):
                        ready_at = time.monotonic()
                    self._update(message)
                    self._listener.on_message(self, message, attachments)
        # Neither a worker's messages nor its failed start may end the server.
        except Exception as error:
            if not self._hung:
                self.problem = f"{type(error).__name__}: {error}"
        finally:
            # Its shutdown may take a while; it must get no more jobs.
            self.hello = None
            if self.state == "ready":
                self.state = "restarting"
            status = await self._shut_down()
            if status is not None and self.problem is None:
                self.problem = f"it ended with status {status}"
            self._did_work |= ready_at is not None and time.monotonic() - ready_at >= STABLE_AFTER_S
            self._job_to_blame = self.alone is not None
            self.models, self._memory, self._loading, self.alone = (), None, None, None

    def _update(self, message: FromWorker) -> None:
        self._heartbeat.beat(message, at_work=bool(self.jobs))
        match message:
            case Hello():
                self.hello, self._loading, self.problem, self._was_ready = message, None, None, True
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
                self._cannot_load = message.failure.kind in PERMANENT_FAILURES
            case Finished() | WorkflowFinished() | Failed() | Stopped():
                self._did_work = True
            case _:
                pass

    async def _shut_down(self) -> int | None:
        """Shut the worker down: ask it to end, then kill it."""
        handle, self._handle = self._handle, None
        if handle is None:
            return None
        with suppress(Exception):
            async with asyncio.timeout(self._settings.stop_s):
                await handle.channel.close()
        for timeout_s in (self._settings.stop_s, KILL_TIMEOUT_S):
            try:
                async with asyncio.timeout(timeout_s):
                    return await handle.wait()
            except TimeoutError:
                handle.kill()
        _log.error("worker %s (process %s) does not end even when it is killed", self.name, handle.pid)
        return None
