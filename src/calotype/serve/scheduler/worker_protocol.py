"""What a deployment needs of a worker, however it runs. Knows nothing of processes or frames."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from pydantic import BaseModel

from calotype.serve.ipc.messages import FromWorker


class Channel(Protocol):
    """Messages to and from one worker. Iterating ends, or raises, when the worker has gone."""

    async def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None: ...

    def __aiter__(self) -> AsyncIterator[tuple[FromWorker, list[bytes]]]: ...

    async def close(self) -> None:
        """The worker ends by itself once it sees this."""
        ...


class WorkerHandle(Protocol):
    """A worker that was started."""

    @property
    def channel(self) -> Channel: ...

    @property
    def pid(self) -> int | None:
        """Of its process; None while that is not known."""
        ...

    def kill(self) -> None:
        """End it whatever it does; nothing if it has ended."""
        ...

    async def wait(self) -> int:
        """Its exit status once it has ended."""
        ...


StartWorker = Callable[[], Awaitable[WorkerHandle]]
"""Starts the worker of one device; it says Hello once it can take work."""
