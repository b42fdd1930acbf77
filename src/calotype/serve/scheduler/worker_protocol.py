"""The protocol of a worker as the scheduler uses it, independent of how the worker runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from pydantic import BaseModel

from calotype.serve.ipc.messages import FromWorker


class Channel(Protocol):
    """Messages to and from one worker. Iterating ends, or raises, when the worker has ended."""

    async def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None: ...

    def __aiter__(self) -> AsyncIterator[tuple[FromWorker, list[bytes]]]: ...

    async def close(self) -> None:
        """Close the channel; the worker then ends by itself."""
        ...


class WorkerHandle(Protocol):
    """A started worker."""

    @property
    def channel(self) -> Channel: ...

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not known."""
        ...

    def kill(self) -> None:
        """Kill it; does nothing if it has ended."""
        ...

    async def wait(self) -> int:
        """Wait until it has ended; its exit status."""
        ...


StartWorker = Callable[[], Awaitable[WorkerHandle]]
"""Starts the worker of one device; it sends Hello once it can take jobs."""
