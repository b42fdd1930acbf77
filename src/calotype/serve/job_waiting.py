"""Submits and waits for jobs on behalf of a client that may disconnect.

A client that disconnects while it waits no longer needs the images: the job is canceled, unless the request
had an idempotency key, with which the client may ask for the same job again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import anyio

from calotype.core.errors import CalotypeError
from calotype.serve.auth import Client
from calotype.serve.request_parsing import ParsedRequest
from calotype.serve.service import Service
from calotype.spec.job import Job, JobNews


async def submit_shielded(
    service: Service, caller: Client, parsed: ParsedRequest, *, waited_for: bool = False
) -> Job:
    """Submit a job, completely even if the client disconnects, so that no accepted job is left behind.

    `waited_for`: the client would have waited for the job, so it is canceled if the client disconnects.
    """
    submission = asyncio.ensure_future(
        service.submit(parsed.submission, client=caller.name, image=parsed.image, mask=parsed.mask)
    )
    try:
        return await asyncio.shield(submission)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True), contextlib.suppress(CalotypeError):
            job = await submission
            if waited_for:
                await cancel_abandoned(service, job)
        raise


@contextlib.asynccontextmanager
async def subscribe(
    service: Service, job_id: str, *, previews: bool = False
) -> AsyncIterator[AsyncIterator[JobNews]]:
    """Events of a job; the subscription ends at once when the reader stops."""
    source = service.watch(job_id, previews=previews)
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            with anyio.CancelScope(shield=True):
                await source.aclose()


async def stream_job(service: Service, job: Job, *, previews: bool = False) -> AsyncGenerator[JobNews]:
    """Events of a job up to its end, for a client that may disconnect. Close it when done."""
    async with _cancel_on_disconnect(service, job), subscribe(service, job.id, previews=previews) as source:
        async for item in source:
            yield item


async def wait_for_job(service: Service, job: Job) -> Job:
    """Wait until a job has ended, for a client that may disconnect."""
    async with _cancel_on_disconnect(service, job):
        return await service.wait(job.id)


@contextlib.asynccontextmanager
async def _cancel_on_disconnect(service: Service, job: Job) -> AsyncIterator[None]:
    """Cancel the job when this block is left by cancellation."""
    try:
        yield
    except CalotypeError:
        # A stopping deployment raises this too, and must not lose the job.
        raise
    except BaseException:
        # The disconnect cancels every task here; shield the cancellation of the job from it.
        with anyio.CancelScope(shield=True):
            await cancel_abandoned(service, job)
        raise


async def cancel_abandoned(service: Service, job: Job) -> None:
    """Cancel a job whose client has disconnected, unless it has an idempotency key."""
    if job.idempotency_key is None:
        with contextlib.suppress(CalotypeError):
            await service.cancel(job.id)
