"""Workers that die, are deaf or never begin: whose jobs go where, and when a place is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from pydantic import BaseModel

from calotype.serve.ipc.messages import Failed, ModelFailed, Work
from calotype.serve.service import UnavailableError
from calotype.spec.job import JobFailure
from tests.unit.serve.scheduler.conftest import (
    OpenDeployment,
    Puppet,
    Stage,
    asking,
    metric,
    soon,
    submitted,
    until,
)

pytestmark = pytest.mark.anyio


async def test_a_dead_workers_jobs_go_to_the_next(deployed: OpenDeployment, pauses: list[float]) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        jobs = await submitted(deployment, 2)
        worker.finish(await worker.told(Work))
        await worker.told(Work)
        await soon(deployment.wait(jobs[0].id))
        worker.die()
        successor = await stage.next()
        work = await successor.told(Work)
        assert work.job_id == jobs[1].id
        successor.finish(work)
        done = await soon(deployment.wait(jobs[1].id))
        assert (done.state, done.attempts) == ("done", 2)
        assert pauses == [0.5]
        status = deployment.status().workers[0]
        assert (status.restarts, status.state, status.pid) == (1, "ready", 1002)
        assert metric(deployment, "calotype_worker_restarts_total", worker="worker0") == 1


async def test_a_worker_that_stammers_is_replaced(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        await worker.told(Work)
        worker.stammer()
        successor = await stage.next()
        assert worker.closed
        assert (await successor.told(Work)).job_id == job.id


async def test_a_worker_that_does_not_listen_is_replaced(deployed: OpenDeployment) -> None:
    class Deaf(Puppet):
        async def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None:  # noqa: ARG002
            await asyncio.Event().wait()

    stage, deaf = Stage(Puppet.greet), Deaf(1)
    deaf.greet()
    starts = iter([deaf])

    async def start() -> Puppet:
        return next(starts, None) or await stage.start()

    async with deployed(start, settings={"send_s": 0.01}) as deployment:
        (job,) = await submitted(deployment, 1)
        assert (await (await stage.next()).told(Work)).job_id == job.id
        assert deaf.killed


async def test_a_job_that_kills_workers_fails_alone(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=3))
    async with deployed(stage.start) as deployment:
        poison, *others = await submitted(deployment, 3)
        for _ in range(2):
            worker = await stage.next()
            for _ in range(3):
                await worker.told(Work)
            worker.die()
        worker = await stage.next()
        assert (await worker.told(Work)).job_id == poison.id
        await until(lambda: deployment.status().queued == 2)
        assert worker.told_nothing()
        worker.die()
        lost = await soon(deployment.wait(poison.id))
        assert (lost.state, lost.failure and lost.failure.kind, lost.attempts) == ("failed", "worker_lost", 3)
        worker = await stage.next()
        for other in others:
            worker.finish(await worker.told(Work))
            done = await soon(deployment.wait(other.id))
            assert (done.state, done.attempts) == ("done", 3)


async def test_jobs_that_kill_workers_do_not_take_the_deployment_with_them(
    deployed: OpenDeployment, pauses: list[float]
) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=1))
    async with deployed(stage.start, settings={"max_deaths": 4}) as deployment:
        for number in range(3):
            (poison,) = await submitted(deployment, 1)
            for _ in range(3):
                worker = await stage.next()
                assert (await worker.told(Work)).job_id == poison.id
                worker.die()
            assert (await soon(deployment.wait(poison.id))).state == "failed", number
        (good,) = await submitted(deployment, 1)
        worker = await stage.next()
        worker.finish(await worker.told(Work))
        assert (await soon(deployment.wait(good.id))).state == "done"
        # Where every job kills its worker, it is the worker's own doing.
        for _ in range(4):
            (unlucky,) = await submitted(deployment, 1)
            for _ in range(3):
                await worker.told(Work)
                worker.die()
                await until(lambda: deployment.status().workers[0].state != "ready")
                worker = await stage.next()
            assert (await soon(deployment.wait(unlucky.id))).state == "failed"
        assert pauses[-1] == 60
        # But a device that was reset comes back.
        (good,) = await submitted(deployment, 1)
        worker.finish(await worker.told(Work))
        assert (await soon(deployment.wait(good.id))).state == "done"


async def test_a_deployment_without_workers_says_so_and_lives_again(
    deployed: OpenDeployment, pauses: list[float]
) -> None:
    stage, rested = Stage(lambda puppet: puppet.greet(room=1)), asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await (rested.wait() if seconds == 60 else asyncio.sleep(0))

    async with deployed(stage.start, settings={"max_deaths": 2}, sleep=sleep) as deployment:
        (job,) = await submitted(deployment, 1)
        for _ in range(2):
            worker = await stage.next()
            await worker.told(Work)
            worker.die()
        await until(lambda: deployment.status().workers[0].state == "given up")
        assert deployment.status().problem is not None
        with pytest.raises(UnavailableError, match="workers keep dying"):
            await deployment.submit(asking(), client="ann")
        rested.set()
        worker = await stage.next()
        worker.finish(await worker.told(Work))
        assert (await soon(deployment.wait(job.id))).state == "done"


async def test_a_worker_that_does_not_read_keeps_no_other_waiting(deployed: OpenDeployment) -> None:
    class Deaf(Puppet):
        async def send(self, *_: object) -> None:
            await asyncio.Event().wait()

    deaf, stage = Deaf(1), Stage(lambda puppet: puppet.greet(room=2))
    deaf.greet(room=3)

    async def start() -> Puppet:
        return deaf

    async with deployed(start, stage.start) as deployment:
        worker = await stage.next()
        await until(lambda: all(worker.state == "ready" for worker in deployment.status().workers))
        # The first goes to who has most room.
        await submitted(deployment, 1)
        await until(lambda: deployment.status().workers[0].jobs == 1)
        others = await submitted(deployment, 4)
        told = [await worker.told(Work), await worker.told(Work)]
        assert {work.job_id for work in told} < {job.id for job in others}


async def test_a_suspect_waits_until_a_worker_has_nothing_else(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=2))
    async with deployed(stage.start) as deployment:
        (suspect,) = await submitted(deployment, 1)
        for _ in range(2):
            worker = await stage.next()
            await worker.told(Work)
            worker.die()
        worker = await stage.next()
        assert (await worker.told(Work)).job_id == suspect.id
        (other,) = await submitted(deployment, 1)
        await until(lambda: deployment.status().queued == 1)
        assert worker.told_nothing()
        worker.say(Failed(job_id=suspect.id, failure=JobFailure(kind="internal", message="so it was")))
        assert (await worker.told(Work)).job_id == other.id


async def test_workers_that_never_live_are_given_up(
    deployed: OpenDeployment, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(Puppet.die)
    async with deployed(stage.start, settings={"max_deaths": 4}) as deployment:
        job = await deployment.submit(asking(), client="ann")
        for _ in range(4):
            await stage.next()
        await until(lambda: deployment.status().workers[0].state == "given up")
        assert pauses == [0.5, 1.0, 2.0]
        assert not deployment.status().ready
        with pytest.raises(UnavailableError, match="workers keep dying: worker0: it ended with status 0"):
            await deployment.submit(asking(), client="ann")
        assert (await deployment.job(job.id)).state == "queued"
        assert "is given up: 4 in a row died" in caplog.text
        assert stage.count == 4


async def test_a_first_worker_that_says_what_cannot_be_is_not_started_again(
    deployed: OpenDeployment, pauses: list[float]
) -> None:
    def refuse(worker: Puppet, kind: str) -> None:
        failure = JobFailure.model_validate({"kind": kind, "message": f"it is {kind}"})
        worker.say(ModelFailed(model="emoji", failure=failure))
        worker.die()

    stage = Stage(partial(refuse, kind="not_found"))
    async with deployed(stage.start) as deployment:
        await until(lambda: deployment.status().workers[0].state == "given up")
        assert deployment.status().workers[0].problem == "model 'emoji': it is not_found"
    assert (stage.count, pauses) == (1, [])
    # Memory that others have now may be free soon; and what was there before may be there again.
    stage = Stage(partial(refuse, kind="does_not_fit"))
    async with deployed(stage.start):
        await stage.next()
        await stage.next()
    stage = Stage(None)
    async with deployed(stage.start):
        worker = await stage.next()
        worker.greet()
        worker.die()
        refuse(await stage.next(), "not_found")
        await stage.next()


async def test_a_worker_that_cannot_be_started(deployed: OpenDeployment) -> None:
    async def nowhere() -> Puppet:
        raise FileNotFoundError("no such program")

    async with deployed(nowhere, settings={"max_deaths": 2}) as deployment:
        await until(lambda: deployment.status().workers[0].state == "given up")
        assert "no such program" in (deployment.status().workers[0].problem or "")
