"""More and fewer workers, and others in their place, while jobs are accepted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from calotype.serve.ipc.messages import ModelFailed, Work
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.scheduler.replica_set import ReplicaCount, UpdateError
from calotype.spec.job import JobFailure
from tests.unit.serve.scheduler.conftest import OpenDeployment, Puppet, Stage, soon, submitted, until

pytestmark = pytest.mark.anyio

ONE_JOB_EACH = partial(Puppet.greet, room=1)


def between(least: int, most: int, **more: Any) -> dict[str, Any]:
    """No pause between looks, and no patience with idle workers."""
    return {"size": ReplicaCount(least=least, most=most, idle_s=0.0), **more}


def names(deployment: Deployment) -> list[str]:
    return [worker.name for worker in deployment.status().workers if worker.state == "ready"]


@contextlib.asynccontextmanager
async def at_work(*workers: Puppet) -> AsyncIterator[None]:
    """Meanwhile, they finish whatever they get."""

    async def work(worker: Puppet) -> None:
        while True:
            if worker.told_nothing():
                await asyncio.sleep(0)
            else:
                worker.finish(await worker.told(Work))

    tasks = [asyncio.create_task(work(worker)) for worker in workers]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_workers_come_with_the_queue_and_go_with_it(deployed: OpenDeployment) -> None:
    stage = Stage(ONE_JOB_EACH)
    async with deployed(stage.start, **between(1, 3)) as deployment:
        jobs = await submitted(deployment, 5)
        workers = [await stage.next() for _ in range(3)]
        await until(lambda: deployment.status().running == 3)
        assert stage.count == 3, "no more than the most"
        async with at_work(*workers):
            ended = [await soon(deployment.wait(job.id)) for job in jobs]
            assert [job.state for job in ended] == ["done"] * 5
            await until(lambda: len(deployment.status().workers) == 1)
        assert sum(worker.closed for worker in workers) == 2
        assert not any(worker.killed for worker in workers), "they went by themselves"


async def test_more_come_while_one_still_ends_its_jobs(deployed: OpenDeployment) -> None:
    stage = Stage(partial(Puppet.greet, room=2))
    async with deployed(stage.start, **between(1, 3)) as deployment:
        first = await stage.next()
        await submitted(deployment, 3)
        second = await stage.next()
        works = [(first, await first.told(Work)), (first, await first.told(Work))]
        works.append((second, await second.told(Work)))
        first.finish(works[0][1])
        # One worker would do for the two jobs that are left, so the other leaves when its own has ended.
        await until(lambda: "leaving" in [worker.state for worker in deployment.status().workers])
        jobs = await submitted(deployment, 6)
        more = [await stage.next(), await stage.next()]
        async with at_work(first, second, *more):
            assert [(await soon(deployment.wait(job.id))).state for job in jobs] == ["done"] * 6
        for worker, work in works[1:]:
            worker.finish(work)


async def test_fewer_must_have_been_enough_for_a_while(deployed: OpenDeployment) -> None:
    stage = Stage(ONE_JOB_EACH)
    async with deployed(stage.start, size=ReplicaCount(least=1, most=2, idle_s=3600.0)) as deployment:
        jobs = await submitted(deployment, 2)
        async with at_work(await stage.next(), await stage.next()):
            for job in jobs:
                await soon(deployment.wait(job.id))
        # Many looks at an empty queue.
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(names(deployment)) == 2


async def test_workers_are_replaced_one_by_one_and_nothing_is_lost(deployed: OpenDeployment) -> None:
    old, new = Stage(partial(Puppet.greet, room=2)), Stage(partial(Puppet.greet, room=2))
    async with deployed(old.start, old.start, **between(2, 2)) as deployment:
        workers = [await old.next(), await old.next()]
        jobs = await submitted(deployment, 4)
        works = [(worker, await worker.told(Work)) for worker in workers for _ in range(2)]
        updating = asyncio.create_task(deployment.update(("sdxl",), new.start, ReplicaCount(least=2, most=2)))
        await until(lambda: [worker.state for worker in deployment.status().workers].count("leaving") == 1)
        assert deployment.status().ready, "the other one works on"
        later = (await submitted(deployment, 1))[0]
        # One that leaves has room again and gets nothing more; the other does.
        leaving, done = works[0]
        leaving.finish(done)
        await soon(deployment.wait(done.job_id))
        staying, done = works[2]
        staying.finish(done)
        more = await staying.told(Work)
        assert more.job_id == later.id
        assert not any(worker.closed for worker in workers), "each has jobs"
        for worker, work in (works[1], works[3], (staying, more)):
            worker.finish(work)
        async with at_work(*workers):
            first = await new.next()
            async with at_work(first):
                second = await new.next()
                async with at_work(second):
                    await soon(updating)
                    ended = [await soon(deployment.wait(job.id)) for job in (*jobs, later)]
        assert [(job.state, job.attempts) for job in ended] == [("done", 1)] * 5
        assert [worker.closed for worker in workers] == [True, True]
        assert names(deployment) == ["worker0", "worker1"]
        assert new.count == 2
        assert deployment.settings.models == ("sdxl",)


async def test_what_will_not_start_everywhere_replaces_nobody(deployed: OpenDeployment) -> None:
    def refuse(puppet: Puppet) -> None:
        if bad.count == 1:
            puppet.greet()
            return
        puppet.say(ModelFailed(model="none", failure=JobFailure(kind="not_found", message="no model 'none'")))
        puppet.die()

    old, bad = Stage(ONE_JOB_EACH), Stage(refuse)
    async with deployed(old.start, old.start, **between(2, 2)) as deployment:
        await until(lambda: len(names(deployment)) == 2)
        with pytest.raises(UpdateError, match="no model 'none'"):
            await soon(deployment.update(("none",), bad.start, ReplicaCount(least=2, most=2)))
        assert len(names(deployment)) == 2
        assert old.count == 4, "the one that was replaced has its place again"
        assert (await bad.next()).closed
        assert deployment.settings.models == ("emoji",)


async def test_a_leaving_worker_that_dies_loses_nothing_and_has_no_successor(
    deployed: OpenDeployment,
) -> None:
    old, new = Stage(ONE_JOB_EACH), Stage(ONE_JOB_EACH)
    async with deployed(old.start, **between(1, 1)) as deployment:
        worker = await old.next()
        (job,) = await submitted(deployment, 1)
        await worker.told(Work)
        updating = asyncio.create_task(deployment.update(("emoji",), new.start, ReplicaCount()))
        await until(lambda: deployment.status().workers[0].state == "leaving")
        worker.die()
        successor = await new.next()
        successor.finish(await successor.told(Work))
        await soon(updating)
        assert (await soon(deployment.wait(job.id))).state == "done"
        assert old.count == 1


@pytest.mark.parametrize(("jobs", "workers"), [(0, 2), (8, 2), (9, 3), (17, 5), (1000, 5)])
def test_how_many_are_wanted(jobs: int, workers: int) -> None:
    assert ReplicaCount(least=2, most=5).wanted(jobs, room=4) == workers
    assert ReplicaCount(least=2, most=5, jobs_each=4).wanted(jobs, room=1) == workers
