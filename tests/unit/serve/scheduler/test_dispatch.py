"""Jobs to workers and back: rooms, ends, stops, deadlines and those who look."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from calotype.core.errors import DoesNotFitError, RequestError
from calotype.serve.http.app import create_app
from calotype.serve.ipc.messages import (
    Evaluated,
    Failed,
    Finished,
    Load,
    LoadedModel,
    ModelFailed,
    Models,
    Stop,
    Stopped,
    UnsendableError,
    Watch,
    Work,
)
from calotype.serve.queue.database import Database
from calotype.serve.queue.queue import Clock
from calotype.serve.scheduler import job_subscriptions
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.service import Service, UnavailableError
from calotype.serve.settings import ServeSettings
from calotype.spec.job import Job, JobFailure, JobNews
from tests.unit.serve.scheduler.conftest import (
    EMOJI,
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


async def test_a_job_is_done(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        service: Service = deployment
        job = await service.submit(asking("an apple", count=1), client="ann")
        assert (job.state, job.model, job.client) == ("queued", "emoji", "ann")
        worker = await stage.next()
        work = await worker.told(Work)
        assert (work.job_id, work.model, work.request["prompt"]) == (job.id, "emoji", "an apple")
        assert not work.previews
        worker.say(Evaluated(rows=2, jobs=1, seconds=0.25))
        worker.finish(work, b"the apple")
        done = await soon(service.wait(job.id))
        assert (done.state, done.steps_done, done.request["width"]) == ("done", 4, 64)
        assert await service.picture(job.id, 0, client="ann") == b"the apple"
        assert metric(deployment, "calotype_images_total", model="emoji") == 1
        assert metric(deployment, "calotype_batch_rows_sum") == 2
        assert metric(deployment, "calotype_step_seconds_sum") == 0.25
        assert metric(deployment, "calotype_jobs_ended_total", state="done") == 1
        assert metric(deployment, "calotype_job_wait_seconds_count") == 1
        assert metric(deployment, "calotype_worker_free_memory_bytes", worker="worker0") == 400


async def test_a_request_alone_costs_three_transactions(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to accept it, one to claim it, one to end it; whoever waits for it adds none."""
    stage, calls = Stage(Puppet.greet), list[bool]()
    call = Database.call

    async def counted(self: Database[Any], work: Any, *, durable: bool = True, **how: Any) -> Any:
        calls.append(durable)
        return await call(self, work, durable=durable, **how)

    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        monkeypatch.setattr(Database, "call", counted)
        for number in range(3):
            calls.clear()
            job = await deployment.submit(asking(idempotency_key=str(number)), client="ann")
            waiting = asyncio.create_task(deployment.wait(job.id))
            work = await worker.told(Work)
            worker.say(Evaluated(rows=2, jobs=1, seconds=0.1, steps={job.id: (2, 4)}))
            await stepped_to(deployment, job.id, steps=2)
            calls.remove(True)  # The look at its steps.
            worker.finish(work)
            assert (await soon(waiting)).state == "done"
            assert (await deployment.picture(job.id, 0)) == b"picture"
            # Beside the first, the history may be tidied.
            assert number == 0 or sorted(calls) == [False, True, True]


async def test_what_has_not_ended_is_counted_all_the_time(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the answer that accepts it until its end is on disk, in the status and in the metrics."""
    stage, call = Stage(Puppet.greet), Database.call
    keeping, kept = asyncio.Event(), asyncio.Event()

    async def slow(self: Database[Any], work: Any, *, durable: bool = True, **how: Any) -> Any:
        keeping.set()
        await kept.wait()
        return await call(self, work, durable=durable, **how)

    def counts() -> list[float]:
        status = deployment.status()
        told = [metric(deployment, f"calotype_jobs_{state}") for state in ("queued", "running")]
        assert told == [status.queued, status.running]
        return told

    async with deployed(stage.start) as deployment:
        job = await deployment.submit(asking(), client="ann")
        assert sum(counts()) == 1
        worker = await stage.next()
        work = await worker.told(Work)
        assert counts() == [0, 1]
        monkeypatch.setattr(Database, "call", slow)
        worker.finish(work)
        await soon(keeping.wait())
        assert worker.told_nothing()
        assert counts() == [0, 1]
        kept.set()
        await soon(deployment.wait(job.id))
        assert counts() == [0, 0]


async def test_what_is_asked_again_is_accepted_once(deployed: OpenDeployment) -> None:
    async with deployed(Stage(None).start) as deployment:
        first, again = [await deployment.submit(asking(idempotency_key="k"), client="ann") for _ in range(2)]
        assert first.id == again.id
        assert metric(deployment, "calotype_jobs_accepted_total") == 1


async def test_a_worker_gets_as_many_as_it_has_room_for(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        jobs = await submitted(deployment, 4)
        first, second = [await worker.told(Work) for _ in range(2)]
        assert [first.job_id, second.job_id] == [jobs[0].id, jobs[1].id]
        worker.step(first.job_id, 1)
        await stepped_to(deployment, first.job_id, steps=1)
        await until(lambda: deployment.status().queued == 2)
        assert worker.told_nothing()
        worker.finish(second)
        assert (await worker.told(Work)).job_id == jobs[2].id
        await until(lambda: deployment.status().queued == 1)
        await soon(deployment.wait(second.job_id))
        assert worker.told_nothing()
        status = deployment.status()
        assert (status.running, status.ready) == (2, True)
        assert status.workers[0].jobs == 2


async def stepped_to(deployment: Deployment, job_id: str, *, steps: int) -> None:
    """Wait until a job's steps are known to have come so far."""
    async with aclosing(deployment.watch(job_id)) as job_subscriptions:
        async for news in job_subscriptions:
            if news.job.steps_done >= steps:
                return


async def test_a_worker_that_has_the_model_is_preferred(deployed: OpenDeployment) -> None:
    other = LoadedModel(name="other", architecture="sd15", sha256="0" * 64, random=True, bytes=1)
    stages = [
        Stage(lambda puppet: puppet.greet(4, [EMOJI])),
        Stage(lambda puppet: puppet.greet(3, [EMOJI, other])),
    ]
    async with deployed(*(stage.start for stage in stages)) as deployment:
        workers = [await stage.next() for stage in stages]
        first = await deployment.submit(asking(model="emoji"), client="ann")
        assert (await workers[0].told(Work)).job_id == first.id
        for name in ("other", other.sha256):
            job = await deployment.submit(asking(model=name), client="ann")
            assert (await workers[1].told(Work)).job_id == job.id
        assert [model.name for model in await deployment.models()] == ["emoji", "other"]


async def test_a_failing_job_fails_alone(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        bad, good = await submitted(deployment, 2)
        await worker.told(Work)
        work = await worker.told(Work)
        worker.say(Failed(job_id=bad.id, failure=JobFailure(kind="does_not_fit", message="too large")))
        worker.finish(work)
        failed = await soon(deployment.wait(bad.id))
        assert (failed.state, failed.failure and failed.failure.message) == ("failed", "too large")
        assert (await soon(deployment.wait(good.id))).state == "done"
        assert metric(deployment, "calotype_job_failures_total", kind="does_not_fit") == 1


async def test_an_answer_that_makes_no_sense_fails_its_job(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        worker.finish(work.model_copy(update={"job_id": "unheard of"}))
        said = Finished(job_id=job.id, request={}, widths=(8,), heights=(8,), seeds=(1,))
        worker.say(said, b"one", b"two")
        failed = await soon(deployment.wait(job.id))
        assert failed.failure == JobFailure(
            kind="internal", message="its worker sent 2 images but described 1"
        )


async def test_cancelling(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=2))
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        stopped, quick, waiting = await submitted(deployment, 3)
        await worker.told(Work)
        quick_work = await worker.told(Work)
        assert (await deployment.cancel(waiting.id)).state == "cancelled"
        worker.step(stopped.id, 3)
        await stepped_to(deployment, stopped.id, steps=3)
        asked = await deployment.cancel(stopped.id)
        assert (asked.state, asked.steps_done) == ("running", 3)
        assert (await worker.told(Stop)).job_id == stopped.id
        worker.say(Stopped(job_id=stopped.id))
        ended = await soon(deployment.wait(stopped.id))
        assert (ended.state, ended.steps_done) == ("cancelled", 3)
        # One that was finished before it could be stopped is finished.
        await deployment.cancel(quick.id)
        worker.finish(quick_work)
        assert (await soon(deployment.wait(quick.id))).state == "done"
        assert (await deployment.cancel(quick.id)).state == "done"
        assert metric(deployment, "calotype_jobs_ended_total", state="cancelled") == 2


async def test_a_passed_deadline_ends_waiting_and_running_jobs(deployed: OpenDeployment) -> None:
    stage, now = Stage(lambda puppet: puppet.greet(room=1)), [0.0]
    async with deployed(stage.start, clock=Clock(monotonic=lambda: now[0])) as deployment:
        worker = await stage.next()
        running = await deployment.submit(asking(deadline_s=100.0), client="ann")
        work = await worker.told(Work)
        waiting = await deployment.submit(asking(deadline_s=100.0), client="ann")
        slow = deployment.watch(running.id)
        await anext(slow)
        now[0] += 100
        # A new deadline makes it look at the clock.
        after = await deployment.submit(asking(deadline_s=100.0), client="ann")
        for job in (running, waiting):
            ended = await soon(deployment.wait(job.id))
            assert (ended.state, ended.failure and ended.failure.kind) == ("failed", "deadline")
        assert (await worker.told(Stop)).job_id == running.id
        # What its worker says after that changes nothing, for nobody.
        worker.step(running.id, 3)
        worker.finish(work)
        assert (await worker.told(Work)).job_id == after.id
        assert (await soon(anext(slow))).job.state == "failed"
        assert (await deployment.job(running.id)).state == "failed"
        assert metric(deployment, "calotype_job_failures_total", kind="deadline") == 2


async def test_a_job_that_no_worker_can_be_told_of_fails_and_kills_nobody(deployed: OpenDeployment) -> None:
    class Picky(Puppet):
        async def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None:
            if isinstance(message, Work) and "unsayable" in message.request["prompt"]:
                raise UnsendableError("a frame is too large")
            await super().send(message, attachments)

    picky = Picky(1)
    picky.greet()
    starts = iter([picky])

    async def start() -> Puppet:
        return next(starts)

    async with deployed(start) as deployment:
        bad = await deployment.submit(asking("unsayable"), client="ann")
        failed = await soon(deployment.wait(bad.id))
        assert failed.failure == JobFailure(
            kind="bad_request", message="it cannot be sent to a worker: a frame is too large"
        )
        (good,) = await submitted(deployment, 1)
        picky.finish(await picky.told(Work))
        assert (await soon(deployment.wait(good.id))).state == "done"
        assert not picky.killed


async def test_a_key_stands_for_its_job_whatever_is_served_first_today(deployed: OpenDeployment) -> None:
    async with deployed(Stage(None).start) as deployment:
        first = await deployment.submit(asking(idempotency_key="k"), client="ann")
    async with deployed(Stage(None).start, settings={"models": ("sdxl", "emoji")}) as deployment:
        assert (await deployment.submit(asking(idempotency_key="k"), client="ann")).id == first.id
        with pytest.raises(RequestError, match="requests something else"):
            await deployment.submit(asking(idempotency_key="k", model="sdxl"), client="ann")


async def test_a_job_that_ends_while_it_is_cancelled_is_counted_once(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        running = await deployment.job(job.id)
        worker.finish(work)
        await soon(deployment.wait(job.id))

        async def as_it_was(*_: object) -> Job:
            return running

        monkeypatch.setattr(deployment._queue, "job", as_it_was)
        assert (await deployment.cancel(job.id)).state == "done"
        assert metric(deployment, "calotype_jobs_ended_total", state="done") == 1
        assert metric(deployment, "calotype_images_total", model="emoji") == 1


async def test_a_slow_reader_misses_steps_and_never_the_end(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        slow = deployment.watch(job.id)
        first = await anext(slow)
        for step in range(1, 5):
            worker.step(job.id, step)
        worker.finish(work)
        await soon(deployment.wait(job.id))
        assert (await soon(anext(slow))).job.state == "done"
        with pytest.raises(StopAsyncIteration):
            await soon(anext(slow))
        assert first.job.id == job.id
        late = [news.job.state async for news in deployment.watch(job.id)]
        assert late == ["done"]


async def test_a_quick_reader_sees_every_step(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        seen = []
        async for news in deployment.watch(job.id):
            seen.append((news.job.state, news.job.steps_done))
            if news.job.steps_done < 4:
                worker.step(job.id, news.job.steps_done + 1)
            elif news.job.state == "running":
                worker.finish(work)
        assert seen == [*(("running", step) for step in range(5)), ("done", 4)]


async def test_previews_are_made_while_somebody_looks(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=1))
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        first, second = await submitted(deployment, 2)
        work = await worker.told(Work)
        assert not work.previews

        async def look() -> JobNews:
            async with aclosing(deployment.watch(first.id, previews=True)) as job_subscriptions:
                async for news in job_subscriptions:
                    if news.preview:
                        return news
            raise AssertionError("it ended without one")

        looking = asyncio.create_task(look())
        assert (await worker.told(Watch)).previews
        blind = deployment.watch(first.id)
        await anext(blind)
        worker.step(first.id, 1, preview=b"a sketch")
        assert (await soon(looking)).preview == b"a sketch"
        assert (await soon(anext(blind))).preview is None
        assert not (await worker.told(Watch)).previews
        # Who looks before it begins sees it from the beginning.
        early = deployment.watch(second.id, previews=True)
        await anext(early)
        worker.finish(work)
        assert (await worker.told(Work)).previews
        await early.aclose()
        assert not (await worker.told(Watch)).previews


async def test_a1111s_progress_shows_the_last_preview(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment, over_http(deployment) as client:

        async def shown() -> str | None:
            return (await client.get("/sdapi/v1/progress")).json()["current_image"]

        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        assert await shown() is None
        assert (await worker.told(Watch)).previews
        worker.step(job.id, 1, preview=b"a sketch")
        worker.step(job.id, 2)
        while (await deployment.job(job.id)).steps_done < 2:
            await asyncio.sleep(0)
        assert [await shown() for _ in range(2)] == [base64.b64encode(b"a sketch").decode()] * 2
        worker.finish(work)
        await soon(deployment.wait(job.id))
        assert deployment.poll_preview(job.id) is None


async def test_previews_end_some_time_after_the_last_glance(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_subscriptions, "PREVIEW_POLL_S", 0)
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        await worker.told(Work)
        deployment.poll_preview(job.id)
        assert [(await worker.told(Watch)).previews for _ in range(2)] == [True, False]


@asynccontextmanager
async def over_http(deployment: Deployment) -> AsyncIterator[httpx.AsyncClient]:
    settings = ServeSettings(http_port=80)
    app = create_app(deployment, keys=None, registry=deployment.metrics.registry, settings=settings)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_outcomes_that_the_disk_refuses_are_kept_for_later(
    deployed: OpenDeployment, pauses: list[float]
) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=1))
    holder: list[Deployment] = []

    async def until_it_works(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            queue = holder[0]._queue
            await queue._read(lambda connection: connection.execute("PRAGMA query_only = 0").fetchone())
        await asyncio.sleep(0)

    async with deployed(stage.start, sleep=until_it_works) as deployment:
        holder.append(deployment)
        worker = await stage.next()
        (job,) = await submitted(deployment, 1)
        work = await worker.told(Work)
        await deployment._queue._read(
            lambda connection: connection.execute("PRAGMA query_only = 1").fetchone()
        )
        with pytest.raises(UnavailableError, match="readonly"):
            await deployment.submit(asking(), client="ann")
        worker.finish(work)
        assert (await soon(deployment.wait(job.id))).state == "done"
        assert pauses == [0.5, 1.0, 2.0]
        (after,) = await submitted(deployment, 1)
        assert (await worker.told(Work)).job_id == after.id


async def test_a_job_s_preset_goes_to_a_worker_and_outlives_the_server(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        job = await deployment.submit(asking(preset="int8", idempotency_key="k"), client="ann")
        assert (await (await stage.next()).told(Work)).preset == "int8"
        again = await deployment.submit(asking(preset="int8", idempotency_key="k"), client="ann")
        assert again.id == job.id
        with pytest.raises(RequestError, match="requests something else"):
            await deployment.submit(asking(preset="fast", idempotency_key="k"), client="ann")
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        work = await worker.told(Work)
        assert (work.job_id, work.preset) == (job.id, "int8")
        worker.finish(work)
        assert (await soon(deployment.wait(job.id))).preset == "int8"
        assert [one.preset for one in await deployment.jobs()] == ["int8"]


async def test_a_worker_that_has_the_model_with_the_preset_is_preferred(deployed: OpenDeployment) -> None:
    eight = EMOJI.model_copy(update={"preset": "int8"})
    stages = [
        Stage(lambda puppet: puppet.greet(4, [EMOJI])),
        Stage(lambda puppet: puppet.greet(3, [eight])),
        Stage(lambda puppet: puppet.greet(2, [])),
    ]
    async with deployed(*(stage.start for stage in stages)) as deployment:
        workers = [await stage.next() for stage in stages]
        for preset, worker in (("int8", workers[1]), ("baseline", workers[0]), (None, workers[0])):
            job = await deployment.submit(asking(preset=preset), client="ann")
            assert (await worker.told(Work)).job_id == job.id
        assert list(await deployment.models()) == [EMOJI], "one model, whatever it runs with"


async def test_a_model_that_is_there_with_another_preset_alone_is_not_loaded_yet(
    deployed: OpenDeployment,
) -> None:
    eight = EMOJI.model_copy(update={"preset": "int8"})
    stage = Stage(lambda puppet: puppet.greet(4, [eight]))
    async with deployed(stage.start) as deployment:
        worker = await stage.next()
        await until(lambda: deployment.status().ready)
        loading = asyncio.create_task(deployment.load_model("emoji"))
        await worker.told(Load)
        worker.say(Models(models=(eight,), memory_bytes=1000, free_bytes=400))
        worker.say(
            ModelFailed(model="emoji", failure=JobFailure(kind="does_not_fit", message="no room for both"))
        )
        with pytest.raises(DoesNotFitError, match="no room for both"):
            await soon(loading)
