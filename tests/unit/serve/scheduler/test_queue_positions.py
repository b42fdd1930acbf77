"""Who looks at a job that waits hears how near it has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise

import pytest

from calotype.serve.ipc.messages import Work
from calotype.serve.queue.queue import JobQueue
from calotype.serve.scheduler.deployment import Deployment
from calotype.spec.job import Job
from tests.unit.serve.scheduler.conftest import OpenDeployment, Stage, soon, submitted

pytestmark = pytest.mark.anyio


async def places(deployment: Deployment, job: Job) -> AsyncIterator[int | None]:
    """Each place that is told, and None once it has none."""
    async with aclosing(deployment.watch(job.id)) as told:
        async for news in told:
            yield news.job.position
            if news.job.position is None:
                return


async def test_a_waiting_job_comes_nearer(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=1))
    async with deployed(stage.start, settings={"places_s": 0}) as deployment:
        worker = await stage.next()
        jobs = await submitted(deployment, 4)
        work = await worker.told(Work)
        told = places(deployment, jobs[-1])
        assert await soon(anext(told)) == 2
        for place in (1, 0, None):
            worker.finish(work)
            work = await worker.told(Work)
            assert await soon(anext(told)) == place


async def test_others_that_leave_or_are_moved_count_too(deployed: OpenDeployment) -> None:
    async with deployed(Stage(None).start, settings={"places_s": 0}) as deployment:
        jobs = await submitted(deployment, 4)
        told = places(deployment, jobs[2])
        assert await soon(anext(told)) == 2
        await deployment.cancel(jobs[0].id)
        assert await soon(anext(told)) == 1
        await deployment.move(jobs[3].id, jobs[1].id)
        assert await soon(anext(told)) == 2


async def test_far_back_little_is_told_and_all_at_once(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    moved = JobQueue.moved

    async def counted(self: JobQueue, *arguments: object) -> list[Job]:
        looks.append(arguments)
        return await moved(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(JobQueue, "moved", counted)
    stage = Stage(lambda puppet: puppet.greet(room=1))
    number = 40
    async with deployed(stage.start, settings={"places_s": 0}) as deployment:
        worker = await stage.next()
        jobs = await submitted(deployment, number + 1)
        heard: list[int] = []

        async def listen() -> None:
            heard.extend([-1 if place is None else place async for place in places(deployment, jobs[-1])])

        listening = asyncio.create_task(listen())
        for _ in range(number):
            worker.finish(await worker.told(Work))
        await worker.told(Work)
        await soon(listening)
        assert heard[0] >= number - 2
        assert heard[-1] == -1
        assert heard == sorted(heard, reverse=True)
        # A tenth nearer each time: far fewer than there are places.
        assert all((before - after) * 10 >= before for before, after in pairwise(heard))
        assert len(heard) < number
        before = len(looks)
        await deployment.cancel(jobs[-1].id)
        # Nobody looks at a waiting job any more, so nothing is looked up.
        await soon(deployment.jobs())
        assert len(looks) == before


async def test_nobody_else_hears_of_places(deployed: OpenDeployment) -> None:
    async with deployed(Stage(None).start, settings={"places_s": 0}) as deployment:
        jobs = await submitted(deployment, 3)
        with deployment.follow() as happenings:
            told = places(deployment, jobs[2])
            assert await soon(anext(told)) == 2
            await deployment.cancel(jobs[0].id)
            assert await soon(anext(told)) == 1
            await deployment.cancel(jobs[1].id)
            seen = [await soon(anext(happenings)) for _ in range(2)]
            assert [happening.job.id for happening in seen] == [jobs[0].id, jobs[1].id]
