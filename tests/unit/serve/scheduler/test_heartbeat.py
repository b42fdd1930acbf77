"""Workers that stand still: noticed by a clock that the test sets, ended, and their jobs go on."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import calotype
from calotype.serve.http.app import create_app
from calotype.serve.ipc.messages import Evaluated, Stage, Work
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.settings import ServeSettings
from calotype.serve.worker.options import WorkerOptions
from calotype.serve.worker.process import WorkerProcess, start_worker
from tests.unit.serve.scheduler.conftest import OpenDeployment, Puppet, asking, metric, soon, submitted, until
from tests.unit.serve.scheduler.conftest import Stage as Theatre

pytestmark = pytest.mark.anyio

LIMITS = {"hang_s": 0.1, "load_s": 100.0, "stop_s": 0.01}
"""Of the test's clock; by the real one workers are looked at every 10 ms."""


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now, self.asked = 1000.0, 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now

    async def looked_at(self) -> None:
        """Until workers have been looked at more than twice: whoever is looked at has the time asked for."""
        asked = self.asked
        await until(lambda: self.asked > asked + 4)


async def heard(deployment: Deployment, rows: int) -> None:
    """Until the server has heard of so many rows."""
    await until(lambda: metric(deployment, "calotype_batch_rows_sum") == rows)


def evaluated(worker: Puppet, rows: int = 1) -> None:
    worker.say(Evaluated(rows=rows, jobs=1, seconds=0.1))


async def test_a_silent_worker_is_ended_and_its_jobs_go_on(
    deployed: OpenDeployment, caplog: pytest.LogCaptureFixture
) -> None:
    clock, theatre = Clock(), Theatre(lambda puppet: puppet.greet(room=2))
    async with deployed(theatre.start, monotonic=clock, settings=LIMITS) as deployment:
        worker = await theatre.next()
        jobs = await submitted(deployment, 2)
        for _ in jobs:
            await worker.told(Work)
        clock.now += 0.09
        await clock.looked_at()
        assert not worker.killed
        with caplog.at_level(logging.ERROR):
            clock.now += 0.02
            await until(lambda: worker.killed)
        assert "worker0 with 2 jobs is killed: it hangs" in caplog.text
        assert "the limit is 0.1 s (--hang-limit)" in caplog.text
        assert metric(deployment, "calotype_worker_hangs_total", worker="worker0") == 1
        successor = await theatre.next()
        for _ in jobs:
            successor.finish(await successor.told(Work))
        for job in jobs:
            assert (await soon(deployment.wait(job.id))).attempts == 2
        assert metric(deployment, "calotype_worker_restarts_total", worker="worker0") == 1


async def test_a_worker_with_nothing_to_do_may_be_silent(deployed: OpenDeployment) -> None:
    clock, theatre, loading = Clock(), Theatre(Puppet.greet), Theatre(None)
    async with deployed(theatre.start, loading.start, monotonic=clock, settings=LIMITS) as deployment:
        worker = await theatre.next()
        await until(lambda: deployment.status().ready)
        clock.now += 99
        # The other one, which may be silent for so long because it begins, is looked at as often.
        await clock.looked_at()
        assert not worker.killed
        # Its long silence is not held against it when it gets something to do.
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        await clock.looked_at()
        assert not worker.killed
        worker.finish(work)
        assert (await soon(deployment.wait(job.id))).attempts == 1


async def test_what_takes_long_is_told_of_and_waited_for(deployed: OpenDeployment) -> None:
    clock, theatre = Clock(), Theatre(Puppet.greet)
    async with deployed(theatre.start, monotonic=clock, settings=LIMITS) as deployment:
        worker = await theatre.next()
        await submitted(deployment, 1)
        await worker.told(Work)
        worker.say(Stage(label="loading emoji"))
        evaluated(worker)
        await heard(deployment, 1)
        clock.now += 99
        await clock.looked_at()
        assert not worker.killed
        clock.now += 2
        await until(lambda: worker.killed)
        await until(lambda: deployment.status().workers[0].problem is not None)
        assert "in loading emoji" in str(deployment.status().workers[0].problem)
        assert "--load-limit" in str(deployment.status().workers[0].problem)


async def test_a_stage_ends_when_that_is_said(deployed: OpenDeployment) -> None:
    clock, theatre = Clock(), Theatre(Puppet.greet)
    async with deployed(theatre.start, monotonic=clock, settings=LIMITS) as deployment:
        worker = await theatre.next()
        await submitted(deployment, 1)
        await worker.told(Work)
        worker.say(Stage(label="loading emoji"))
        worker.say(Stage())
        evaluated(worker)
        await heard(deployment, 1)
        clock.now += 1
        await until(lambda: worker.killed)


async def test_one_that_was_slow_before_may_be_slow_again(deployed: OpenDeployment) -> None:
    clock, theatre = Clock(), Theatre(Puppet.greet)
    async with deployed(theatre.start, monotonic=clock, settings=LIMITS) as deployment:
        worker = await theatre.next()
        await submitted(deployment, 1)
        await worker.told(Work)
        worker.say(Stage(label="the first evaluation"))
        evaluated(worker)
        await heard(deployment, 1)
        clock.now += 50
        worker.say(Stage())
        evaluated(worker)
        await heard(deployment, 2)
        clock.now += 90
        await clock.looked_at()
        assert not worker.killed
        clock.now += 20
        await until(lambda: worker.killed)


async def test_a_worker_that_hangs_at_its_start_is_replaced_and_in_the_end_given_up(
    deployed: OpenDeployment,
) -> None:
    clock, theatre = Clock(), Theatre(None)
    async with deployed(theatre.start, monotonic=clock, settings={**LIMITS, "max_deaths": 2}) as deployment:
        app = create_app(
            deployment, keys=None, registry=deployment.metrics.registry, settings=ServeSettings(http_port=80)
        )
        over_http = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=over_http, base_url="http://127.0.0.1") as client:
            for _ in range(2):
                worker = await theatre.next()
                clock.now += 50
                await clock.looked_at()
                assert not worker.killed
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/readyz")).status_code == 503
                clock.now += 51
                await until(lambda: worker.killed)  # noqa: B023 - awaited here
            await until(lambda: deployment.status().problem is not None)
            assert (await client.get("/healthz")).status_code == 503
        assert "it hangs" in str(deployment.status().problem)


async def test_one_that_waits_for_its_place_in_a_cluster_does_not_hang(deployed: OpenDeployment) -> None:
    clock, theatre = Clock(), Theatre(None)

    async def start() -> Puppet:
        puppet = await theatre.start()
        puppet.pid = None  # type: ignore[assignment]
        return puppet

    async with deployed(start, monotonic=clock, settings=LIMITS):
        worker = await theatre.next()
        for _ in range(3):
            clock.now += 10**6
            await clock.looked_at()
        assert not worker.killed
        worker.pid = 1
        await clock.looked_at()
        assert not worker.killed
        clock.now += 101
        await until(lambda: worker.killed)


async def test_one_that_cannot_even_be_killed_does_not_keep_its_jobs(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process does that waits for its device inside the kernel."""
    monkeypatch.setattr("calotype.serve.scheduler.worker_slot.KILL_TIMEOUT_S", 0.01)

    class Undead(Puppet):
        def die(self) -> None:
            pass

        async def close(self) -> None:
            await asyncio.Event().wait()

    clock, theatre = Clock(), Theatre(Puppet.greet)
    undead = Undead(1)
    undead.greet(room=1)
    waiting = [undead]

    async def start() -> Puppet:
        return waiting.pop() if waiting else await theatre.start()

    async with deployed(start, monotonic=clock, settings=LIMITS) as deployment:
        (job,) = await submitted(deployment, 1)
        await undead.told(Work)
        clock.now += 1
        successor = await theatre.next()
        assert undead.killed
        successor.finish(await successor.told(Work))
        assert (await soon(deployment.wait(job.id))).attempts == 2


async def test_a_job_that_hangs_real_workers_is_tried_alone_and_fails(deployed: OpenDeployment) -> None:
    clock = Clock()
    source = str(Path(calotype.__file__).parents[1])

    async def start() -> WorkerProcess:
        options = WorkerOptions(engine="nothing", models=("emoji",))
        return await start_worker(options, environment={"PYTHONPATH": source}, log=asyncio.subprocess.DEVNULL)

    limits = {**LIMITS, "stop_s": 5.0}
    async with deployed(start, monotonic=clock, settings=limits, sleep=asyncio.sleep) as deployment:
        job = await deployment.submit(asking("fault:hang"), client="ann")
        pids = []
        for _ in range(3):
            await slow_until(lambda: "first evaluation" in (deployment.status().workers[0].loading or ""))
            pids.append(deployment.status().workers[0].pid)
            clock.now += 10**6
            await slow_until(lambda: deployment.status().running == 0)
        ended = await soon(deployment.wait(job.id))
        assert ended.failure is not None
        assert (ended.state, ended.failure.kind, ended.attempts) == ("failed", "worker_lost", 3)
        assert len(set(pids)) == 3
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid or 0, 0)
        (good,) = await submitted(deployment, 1)
        assert (await soon(deployment.wait(good.id))).state == "done"


async def slow_until(condition: Callable[[], bool]) -> None:
    """Processes are started meanwhile."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.005)
