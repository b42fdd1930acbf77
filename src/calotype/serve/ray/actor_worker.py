"""The server's handle on a worker in a Ray cluster.

Each worker has its own actor, owned by this process. When the server ends for any reason, Ray ends the
actors, and they end their workers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayError

from calotype.serve.ipc.channel import AsyncChannel, ChannelError, frame
from calotype.serve.ipc.messages import FROM_WORKER, FromWorker, Loading
from calotype.serve.ray.worker_host import WorkerHost
from calotype.serve.worker.options import WorkerOptions

_log = logging.getLogger(__name__)

_GROUPS = {"hear": 1, "tell": 1, "ask": 1}
"""Calls of one group run in order; groups do not wait for each other."""


@cache
def _actors() -> Any:
    """Return the remote class, registered with the cluster once."""
    return ray.remote(concurrency_groups=_GROUPS)(WorkerHost)


@dataclass(frozen=True)
class ActorResources:
    """The resources that a replica takes of a node."""

    cpus: float
    gpus: float
    others: Mapping[str, float]

    def __str__(self) -> str:
        amounts = {"CPU": self.cpus, "GPU": self.gpus, **self.others}
        return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount) or "nothing"


class RayWorker:
    """A requested worker; it starts when a node has free resources."""

    def __init__(self, name: str, options: WorkerOptions, share: ActorResources) -> None:
        self.pid: int | None = None
        self._actor = (
            _actors()
            .options(
                # Readable in Ray's tools, and unique: a successor may start before this actor has ended.
                name=f"{name}-{uuid4().hex[:8]}",
                num_cpus=share.cpus,
                num_gpus=share.gpus,
                resources=dict(share.others),
                scheduling_strategy="SPREAD",
            )
            .remote(options.as_arguments())
        )
        self._status = self._call("ask", "wait")
        reader = asyncio.StreamReader()
        reader.feed_data(frame(Loading(label=f"waiting for a node with {share} free", done=0, total=1)))
        self.channel: AsyncChannel[FromWorker] = AsyncChannel(reader, _Writer(self), FROM_WORKER)
        self._receive_task = asyncio.create_task(self._receive(reader))

    def _call(self, group: str, method: str, *arguments: object, **options: object) -> Any:
        return getattr(self._actor, method).options(concurrency_group=group, **options).remote(*arguments)

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            node, self.pid = await self._call("hear", "process")
            _log.info("a replica starts on %s", node, extra={"worker_pid": self.pid})
            async for data in self._call("hear", "hear", num_returns="streaming"):
                reader.feed_data(await data)
            reader.feed_eof()
        # Catch everything: otherwise the reader would wait indefinitely.
        except Exception as error:
            reader.set_exception(ChannelError(f"the replica is lost: {_summary(error)}"))

    def tell(self, data: bytes) -> Any:
        return self._call("tell", "tell", data)

    def close(self) -> None:
        """End the worker; cancel it if it has not started."""
        if self.pid is None:
            self.kill()
        else:
            self._call("tell", "close")

    def kill(self) -> None:
        # If Ray itself is gone, the actor cannot be killed but is dead anyway.
        with suppress(Exception):
            ray.kill(self._actor)

    async def wait(self) -> int:
        """Wait for the worker's exit status; SIGKILL's if its node is lost."""
        try:
            status: int = await self._status
        except RayError:
            status = -signal.SIGKILL
        self._receive_task.cancel()
        self.kill()
        return status


class _Writer:
    """The stream writer of the channel."""

    def __init__(self, replica: RayWorker) -> None:
        self._replica = replica
        self._last: Any = None

    def write(self, data: bytes) -> None:
        self._last = self._replica.tell(data)

    async def drain(self) -> None:
        try:
            await self._last
        except RayError as error:
            raise ConnectionError(_summary(error)) from error

    def close(self) -> None:
        self._replica.close()

    async def wait_closed(self) -> None:
        """Do nothing: `RayWorker.wait` waits for the end."""


def _summary(error: Exception) -> str:
    """Shorten Ray's long messages: the event is in the first line, the cause in the last."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " … ".join(dict.fromkeys((lines[0].strip(), lines[-1].strip())))
