"""Waiting for a job on behalf of a client that may leave. Knows nothing of what is answered.

Who waits and leaves needs the pictures no more: the job is cancelled, unless the request had an idempotency
key, which says that the client may ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import anyio
from fastapi import Request

from calotype.core.errors import CalotypeError
from calotype.serve.access import Caller
from calotype.serve.asked import Asked
from calotype.serve.failures import ClientLeftError
from calotype.serve.service import Service
from calotype.spec.job import FINAL_STATES, Job, JobNews


async def submit(service: Service, caller: Caller, asked: Asked) -> Job:
    """Hand a job in."""
    return await service.submit(asked.submission, client=caller.name, image=asked.image, mask=asked.mask)


async def ended(request: Request, service: Service, job: Job, *, within_s: float | None = None) -> Job:
    """The job once it has ended, or as it stands when the time is over."""
    waiting = asyncio.ensure_future(service.wait(job.id))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({waiting, leaving}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if leaving.done():
            await give_up(service, job)
            raise ClientLeftError(f"the client of job {job.id} has left")
        return await service.job(job.id)
    finally:
        for task in (waiting, leaving):
            task.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


async def news(service: Service, job: Job, *, previews: bool) -> AsyncGenerator[JobNews]:
    """News of a job up to its end, for a stream whose reader may leave at any time."""
    state = job.state
    try:
        async for item in service.watch(job.id, previews=previews):
            state = item.job.state
            yield item
    finally:
        if state not in FINAL_STATES:
            # The reader's leaving cancels everything here, which must not include this.
            with anyio.CancelScope(shield=True):
                await give_up(service, job)


async def give_up(service: Service, job: Job) -> None:
    """Cancel a job whose client has left, unless it may come back for it."""
    if job.idempotency_key is None:
        with contextlib.suppress(CalotypeError):
            await service.cancel(job.id)


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
