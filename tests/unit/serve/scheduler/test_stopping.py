"""The end of a deployment, and its next beginning: nothing accepted is lost by either."""

from __future__ import annotations

import asyncio

import pytest

from calotype.serve.ipc.messages import Stop, Stopped, Work
from calotype.serve.job_waiting import stream_job, wait_for_job
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.service import UnavailableError
from calotype.spec.job import Job
from tests.unit.serve.scheduler.conftest import OpenDeployment, Puppet, Stage, asking, soon, submitted, until

pytestmark = pytest.mark.anyio


async def test_a_stop_that_somebody_in_haste_left_is_carried_through(deployed: OpenDeployment) -> None:
    class Slow(Puppet):
        gone = asyncio.Event()

        async def wait(self) -> int:
            await self.gone.wait()
            return 0

    slow = Slow(1)
    slow.greet()

    async def start() -> Puppet:
        return slow

    async with deployed(start) as deployment:
        (job,) = await submitted(deployment, 1)
        await slow.told(Work)
        hasty = asyncio.create_task(deployment.close())
        await until(lambda: slow.closed)
        hasty.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hasty
        slow.gone.set()
        await soon(deployment.close())
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        assert (await (await stage.next()).told(Work)).job_id == job.id


async def test_a_drain_lets_running_jobs_end(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=1))
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        running, waiting = await submitted(deployment, 2)
        work = await worker.told(Work)
        waiter = asyncio.create_task(deployment.wait(waiting.id))
        watcher = asyncio.create_task(deployment.wait(running.id))
        draining = asyncio.create_task(deployment.drain(60))
        await asyncio.sleep(0)
        assert (deployment.status().draining, deployment.status().ready) == (True, False)
        with pytest.raises(UnavailableError, match="accepts no more jobs"):
            await deployment.submit(asking(), client="ann")
        worker.finish(work)
        await soon(draining)
        assert (await soon(watcher)).state == "done"
        with pytest.raises(UnavailableError, match="continue at its next start"):
            await soon(waiter)
        assert worker.closed
        assert worker.told_nothing()
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        assert (await deployment.job(running.id)).state == "done"
        assert (await (await stage.next()).told(Work)).job_id == waiting.id


async def test_what_does_not_end_in_time_stops_and_waits_for_the_next_start(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=2))
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        slow, cancelled = await submitted(deployment, 2)
        for _ in range(2):
            await worker.told(Work)
        await deployment.cancel(cancelled.id)
        await worker.told(Stop)
        draining = asyncio.create_task(deployment.drain(0))
        assert {(await worker.told(Stop)).job_id for _ in range(2)} == {slow.id, cancelled.id}
        for job in (slow, cancelled):
            worker.say(Stopped(job_id=job.id))
        await soon(draining)
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        assert (await deployment.job(cancelled.id)).state == "cancelled"
        worker = await stage.next()
        work = await worker.told(Work)
        assert work.job_id == slow.id
        worker.finish(work)
        assert (await soon(deployment.wait(slow.id))).attempts == 2


async def test_stopping_at_once_is_no_loss(deployed: OpenDeployment) -> None:
    for _ in range(5):
        stage = Stage(Puppet.greet)
        async with deployed(stage.start) as deployment:
            if not await deployment.jobs():
                await submitted(deployment, 1)
            worker = await stage.next()
            await worker.told(Work)
        assert worker.closed
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        (job,) = await deployment.jobs()
        worker = await stage.next()
        worker.finish(await worker.told(Work))
        done = await soon(deployment.wait(job.id))
        assert (done.state, done.attempts) == ("done", 6)


async def test_a_worker_that_does_not_end_is_killed(deployed: OpenDeployment) -> None:
    class Stubborn(Puppet):
        async def close(self) -> None:
            self.closed = True

    puppets = []

    async def start() -> Puppet:
        puppets.append(Stubborn(1))
        puppets[0].greet()
        return puppets[0]

    async with deployed(start, settings={"stop_s": 0.01}) as deployment:
        await until(lambda: deployment.status().ready)
    assert puppets[0].killed


async def test_a_client_that_waits_does_not_lose_its_job_by_a_stop(deployed: OpenDeployment) -> None:
    async def watched(deployment: Deployment, job: Job) -> None:
        async for _ in stream_job(deployment, job):
            pass

    async with deployed(Stage(None).start) as deployment:
        jobs = await submitted(deployment, 2)
        clients = [
            asyncio.create_task(wait_for_job(deployment, jobs[0])),
            asyncio.create_task(watched(deployment, jobs[1])),
        ]
        await asyncio.sleep(0)
        await deployment.drain(0)
        for client in clients:
            with pytest.raises(UnavailableError, match="continue at its next start"):
                await soon(client)
    async with deployed(Stage(None).start) as deployment:
        assert {job.state for job in await deployment.jobs()} == {"queued"}
