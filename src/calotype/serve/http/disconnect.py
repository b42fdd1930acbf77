"""Waiting over a connection that may break. Knows nothing of what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, TypeVar

import anyio
from fastapi import Request

from calotype.serve.errors import ClientLeftError
from calotype.serve.job_waiting import cancel_abandoned
from calotype.serve.service import Service
from calotype.spec.job import Job

T = TypeVar("T")


async def wait_until_disconnect(
    request: Request, service: Service, job: Job, *, within_s: float | None = None
) -> Job:
    """The job once it has ended, or as it stands when the time is over."""
    waiting = asyncio.ensure_future(service.wait(job.id))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({waiting, leaving}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if leaving.done():
            await cancel_abandoned(service, job)
            raise ClientLeftError(f"the client of job {job.id} has left")
        return await service.job(job.id)
    finally:
        for task in (waiting, leaving):
            task.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What some work results in; it is cancelled when the client disconnects."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeftError("the client has disconnected")
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def with_pings(items: AsyncIterator[bytes], ping: bytes, every_s: float) -> AsyncGenerator[bytes]:
    """The same items, and a sign of life after each silence: proxies close what seems dead."""
    following: asyncio.Future[bytes] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(items))
            finished, _ = await asyncio.wait({following}, timeout=every_s)
            if not finished:
                yield ping
                continue
            try:
                item = following.result()
            except StopAsyncIteration:
                return
            following = None
            yield item
    finally:
        with anyio.CancelScope(shield=True):
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            if isinstance(items, AsyncGenerator):
                await items.aclose()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
