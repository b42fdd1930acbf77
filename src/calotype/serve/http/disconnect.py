"""Waits for work on behalf of a client that may disconnect."""

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
    """Wait until the job ends or the time is over; cancel the job if the client disconnects."""
    job_task = asyncio.ensure_future(service.wait(job.id))
    disconnect_task = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({job_task, disconnect_task}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if job_task.done():
            return job_task.result()
        if disconnect_task.done():
            await cancel_abandoned(service, job)
            raise ClientLeftError(f"the client of job {job.id} has disconnected")
        return await service.job(job.id)
    finally:
        for task in (job_task, disconnect_task):
            task.cancel()
        await asyncio.gather(job_task, disconnect_task, return_exceptions=True)


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; cancel it when the client disconnects."""
    work_task = asyncio.ensure_future(work)
    disconnect_task = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
        raise ClientLeftError("the client has disconnected")
    finally:
        for task in (work_task, disconnect_task):
            task.cancel()
        await asyncio.gather(work_task, disconnect_task, return_exceptions=True)


async def with_pings(items: AsyncIterator[bytes], ping: bytes, every_s: float) -> AsyncGenerator[bytes]:
    """Yield the items, and a ping after each idle period: proxies close idle connections."""
    next_item: asyncio.Future[bytes] | None = None
    try:
        while True:
            next_item = next_item or asyncio.ensure_future(anext(items))
            finished, _ = await asyncio.wait({next_item}, timeout=every_s)
            if not finished:
                yield ping
                continue
            try:
                item = next_item.result()
            except StopAsyncIteration:
                return
            next_item = None
            yield item
    finally:
        with anyio.CancelScope(shield=True):
            if next_item is not None:
                next_item.cancel()
                await asyncio.gather(next_item, return_exceptions=True)
            if isinstance(items, AsyncGenerator):
                await items.aclose()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
