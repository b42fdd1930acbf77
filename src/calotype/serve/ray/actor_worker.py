"""A worker in a Ray cluster as the server holds it. Knows nothing of what is said to it.

Each is an actor of its own, owned by this process: when the server ends, however it does, Ray ends the actors
and they their workers.
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
"""Calls of one group are in order; those of another do not wait for them."""


@cache
def _actors() -> Any:
    """The class as Ray knows it, told to the cluster once."""
    return ray.remote(concurrency_groups=_GROUPS)(WorkerHost)


@dataclass(frozen=True)
class ActorResources:
    """What a replica takes of a node."""

    cpus: float
    gpus: float
    others: Mapping[str, float]

    def __str__(self) -> str:
        taken = {"CPU": self.cpus, "GPU": self.gpus, **self.others}
        return ", ".join(f"{amount:g} {name}" for name, amount in taken.items() if amount) or "nothing"


class RayWorker:
    """A worker that was asked for; it begins when some node has room for it."""

    def __init__(self, name: str, options: WorkerOptions, share: ActorResources) -> None:
        self.pid: int | None = None
        self._actor = (
            _actors()
            .options(
                # Whoever looks at the cluster sees what it is; a successor may come before it has gone.
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
        self._hearing = asyncio.create_task(self._hear(reader))

    def _call(self, group: str, method: str, *arguments: object, **options: object) -> Any:
        return getattr(self._actor, method).options(concurrency_group=group, **options).remote(*arguments)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        try:
            node, self.pid = await self._call("hear", "process")
            _log.info("a replica begins on %s", node, extra={"worker_pid": self.pid})
            async for data in self._call("hear", "hear", num_returns="streaming"):
                reader.feed_data(await data)
            reader.feed_eof()
        # Whatever it is: who reads must not wait for what never comes.
        except Exception as error:
            reader.set_exception(ChannelError(f"the replica is lost: {_in_short(error)}"))

    def tell(self, data: bytes) -> Any:
        return self._call("tell", "tell", data)

    def close(self) -> None:
        """Its worker ends by itself; one that has not begun never will."""
        if self.pid is None:
            self.kill()
        else:
            self._call("tell", "close")

    def kill(self) -> None:
        # One that cannot even be killed, because Ray has gone, is as good as dead.
        with suppress(Exception):
            ray.kill(self._actor)

    async def wait(self) -> int:
        """The worker's exit status; as if killed where its node can no longer say."""
        try:
            status: int = await self._status
        except RayError:
            status = -signal.SIGKILL
        self._hearing.cancel()
        self.kill()
        return status


class _Writer:
    """What a channel writes to."""

    def __init__(self, replica: RayWorker) -> None:
        self._replica = replica
        self._last: Any = None

    def write(self, data: bytes) -> None:
        self._last = self._replica.tell(data)

    async def drain(self) -> None:
        try:
            await self._last
        except RayError as error:
            raise ConnectionError(_in_short(error)) from error

    def close(self) -> None:
        self._replica.close()

    async def wait_closed(self) -> None:
        """Whoever waits for the replica sees its end."""


def _in_short(error: Exception) -> str:
    """Ray tells long stories: what happened stands at the beginning, and why at the end."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " … ".join(dict.fromkeys((lines[0].strip(), lines[-1].strip())))
