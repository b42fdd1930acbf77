"""A job on behalf of a client that may leave. Knows nothing of the wire the client hangs on.

Who waits and leaves needs the pictures no more: the job is cancelled, unless the request had an idempotency
key, which says that the client may ask again.
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
    service: Service, caller: Client, asked: ParsedRequest, *, waited_for: bool = False
) -> Job:
    """Hand a job in, to the end whoever leaves meanwhile: half of that would be a job which nobody begins.

    `waited_for`: one who leaves would have waited for it, so it is given up then.
    """
    handing_in = asyncio.ensure_future(
        service.submit(asked.submission, client=caller.name, image=asked.image, mask=asked.mask)
    )
    try:
        return await asyncio.shield(handing_in)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True), contextlib.suppress(CalotypeError):
            job = await handing_in
            if waited_for:
                await cancel_abandoned(service, job)
        raise


@contextlib.asynccontextmanager
async def subscribe(
    service: Service, job_id: str, *, previews: bool = False
) -> AsyncIterator[AsyncIterator[JobNews]]:
    """News of a job; the service is told at once when nobody reads on."""
    source = service.watch(job_id, previews=previews)
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            with anyio.CancelScope(shield=True):
                await source.aclose()


async def stream_job(service: Service, job: Job, *, previews: bool = False) -> AsyncGenerator[JobNews]:
    """News of a job up to its end, for a reader that may leave at any time. Close it when done."""
    async with _unless_it_leaves(service, job), subscribe(service, job.id, previews=previews) as source:
        async for item in source:
            yield item


async def wait_for_job(service: Service, job: Job) -> Job:
    """The job once it has ended, for a client that may leave at any time."""
    async with _unless_it_leaves(service, job):
        return await service.wait(job.id)


@contextlib.asynccontextmanager
async def _unless_it_leaves(service: Service, job: Job) -> AsyncIterator[None]:
    """Give the job up when this is left from outside."""
    try:
        yield
    except CalotypeError:
        # A deployment that stops says so; the job is not to be lost by that.
        raise
    except BaseException:
        # The reader's leaving cancels everything here, which must not include this.
        with anyio.CancelScope(shield=True):
            await cancel_abandoned(service, job)
        raise


async def cancel_abandoned(service: Service, job: Job) -> None:
    """Cancel a job whose client has left, unless it may come back for it."""
    if job.idempotency_key is None:
        with contextlib.suppress(CalotypeError):
            await service.cancel(job.id)
