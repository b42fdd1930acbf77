"""Clients that leave while a job of theirs is being accepted: it is a whole job, or none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from calotype.serve.auth import Client
from calotype.serve.ipc.messages import Work
from calotype.serve.job_waiting import submit_shielded
from calotype.serve.request_parsing import ParsedRequest
from calotype.serve.scheduler.deployment import Deployment
from calotype.spec.job import Job
from tests.unit.serve.scheduler.conftest import OpenDeployment, Puppet, Stage, asking, soon, until

pytestmark = pytest.mark.anyio
ANN = Client("ann", admin=False)


@asynccontextmanager
async def being_written(deployment: Deployment) -> AsyncIterator[None]:
    """What is asked of the queue at the beginning is under way inside of this, and done after it."""
    begin, began, go_on = threading.Event(), threading.Event(), threading.Event()

    def hold(_: object) -> bool:
        began.set()
        return go_on.wait(20)

    database = deployment._queue._database
    first = asyncio.ensure_future(database.call(lambda _: begin.wait(20)))
    second = asyncio.ensure_future(database.call(hold))
    await asyncio.sleep(0)
    # Whoever calls this has asked by now: the next round of the loop has both in one group of calls.
    await asyncio.sleep(0)
    begin.set()
    await until(began.is_set)
    yield
    go_on.set()
    await soon(asyncio.gather(first, second))


async def left_meanwhile(deployment: Deployment, *, waited_for: bool) -> Job:
    handing_in = asyncio.create_task(
        submit_shielded(deployment, ANN, ParsedRequest(asking()), waited_for=waited_for)
    )
    async with being_written(deployment):
        handing_in.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await soon(handing_in)
    (job,) = await deployment.jobs()
    return job


async def test_a_job_whose_client_left_is_begun(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        await until(lambda: deployment.status().ready)
        job = await left_meanwhile(deployment, waited_for=False)
        work = await worker.told(Work)
        assert work.job_id == job.id
        worker.finish(work)
        assert (await soon(deployment.wait(job.id))).state == "done"


async def test_a_job_that_its_client_would_have_waited_for_is_not(deployed: OpenDeployment) -> None:
    stage = Stage(None)
    async with deployed(stage.start) as deployment:
        await stage.next()
        assert (await left_meanwhile(deployment, waited_for=True)).state == "cancelled"
