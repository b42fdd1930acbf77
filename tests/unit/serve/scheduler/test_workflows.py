"""Workflows between queue and worker: what is told when, and what comes of what is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import RequestError
from calotype.serve.api_keys import ApiKeys
from calotype.serve.ipc.messages import (
    Failed,
    MadeFile,
    NodeNews,
    RunWorkflow,
    Stop,
    Stopped,
    Work,
    WorkflowFinished,
)
from calotype.serve.queue.repository import uploads
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.scheduler.event_bus import MAX_UNREAD, EventBus
from calotype.serve.scheduler.settings import RequestLimits
from calotype.serve.service import JobEvent, QueueFullError
from calotype.serve.workflow.admission import WorkflowAdmission
from calotype.serve.workflow.service import WorkflowRefusedError
from calotype.serve.workflow.service_impl import DeploymentWorkflowService
from calotype.spec.job import Job, JobFailure, NodeFailure, PictureFile
from calotype.spec.workflow import WorkflowSubmission
from calotype.workflow.node_api import INT, Input, NodeDef
from calotype.workflow.registry import Registry, load_registry
from tests.unit.serve.scheduler.conftest import OpenDeployment, Puppet, Stage, asking, soon, until

pytestmark = pytest.mark.anyio
SAVE = NodeDef("Save", lambda _: (), inputs=(Input("seed", INT, default=0),), is_output=True)
GRAPH = {"1": {"class_type": "Save", "inputs": {}}}
FILE = PictureFile(filename="a.png", subfolder="", type="output")


def desk_of(deployment: Deployment) -> DeploymentWorkflowService:
    return DeploymentWorkflowService(
        deployment, deployment._queue, WorkflowAdmission(Registry([SAVE]), models=("emoji",))
    )


async def handed_in(deployment: Deployment, client: str = "ann", **knobs: Any) -> Job:
    submission = WorkflowSubmission(prompt=GRAPH, **knobs)
    return (await desk_of(deployment).submit(submission, client=client)).job


def news(work: RunWorkflow, happened: Any, **more: Any) -> NodeNews:
    return NodeNews(job_id=work.job_id, happened=happened, nodes_total=1, **more)


def saved(work: RunWorkflow, *names: str) -> NodeNews:
    files = [FILE.model_copy(update={"filename": f"{name}.png"}) for name in names or ("a",)]
    made = tuple(MadeFile(file=file, width=1, height=1) for file in files)
    ui = {"images": [file.model_dump() for file in files]}
    return news(work, "executed", node="1", ui=ui, files=made, nodes_done=1)


async def test_a_picture_is_on_disk_before_anybody_hears_of_it(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        puppet = await stage.next()
        job = await handed_in(deployment)
        work = await puppet.told(RunWorkflow)
        assert (work.job_id, work.sequence, work.prompt, work.outputs) == (job.id, 1, GRAPH, ("1",))
        with deployment.follow(client="ann") as happenings:
            puppet.say(news(work, "started"))
            puppet.say(news(work, "executing", node="1"))
            puppet.say(saved(work), b"picture")
            # Comes right behind, and must not overtake it.
            puppet.say(WorkflowFinished(job_id=job.id))
            async for happening in happenings:
                if happening.news is not None and happening.news.happened == "executed":
                    assert await desk_of(deployment).picture(FILE, client="ann") == b"picture"
                    assert happening.job.state == "running"
                if happening.job.state == "done":
                    break
        done = await soon(deployment.wait(job.id))
        assert (done.state, done.steps_done, done.steps_total) == ("done", 1, 1)
        assert done.report is not None
        assert done.report.outputs == {"1": {"images": [FILE.model_dump()]}}
        assert await deployment.picture(job.id, 0) == b"picture"


async def test_one_workflow_at_a_time_and_ordinary_jobs_beside_it(deployed: OpenDeployment) -> None:
    stage = Stage(lambda puppet: puppet.greet(room=1))
    async with deployed(stage.start) as deployment:
        puppet = await stage.next()
        first, second = await handed_in(deployment), await handed_in(deployment)
        work = await puppet.told(RunWorkflow)
        plain = await deployment.submit(asking(), client="ann")
        assert (await puppet.told(Work)).job_id == plain.id
        assert (await deployment.job(second.id)).state == "queued"
        puppet.say(saved(work), b"picture")
        puppet.say(WorkflowFinished(job_id=first.id))
        assert work.job_id == first.id
        assert (await puppet.told(RunWorkflow)).job_id == second.id
        # A client that waits for one after the other hears of them in that order.
        assert (await deployment.job(first.id)).state == "done"


async def test_a_dead_workers_workflow_is_begun_again_and_ends_once(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        job = await handed_in(deployment)
        puppet = await stage.next()
        work = await puppet.told(RunWorkflow)
        puppet.say(saved(work), b"lost")
        puppet.die()
        puppet = await stage.next()
        work = await puppet.told(RunWorkflow)
        puppet.say(news(work, "started"))
        puppet.say(saved(work), b"kept")
        puppet.say(WorkflowFinished(job_id=job.id))
        done = await soon(deployment.wait(job.id))
        assert (done.state, done.attempts, len(done.pictures)) == ("done", 2, 1)
        assert await desk_of(deployment).picture(FILE, client="ann") == b"kept"


async def test_what_was_made_before_it_failed_or_was_stopped_is_kept(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        puppet = await stage.next()
        job = await handed_in(deployment)
        work = await puppet.told(RunWorkflow)
        puppet.say(saved(work), b"picture")
        node = NodeFailure(node="2", node_class="Bad", error="ValueError", message="no", traceback=("line",))
        failure = JobFailure(kind="internal", message="no")
        puppet.say(Failed(job_id=job.id, failure=failure, node=node))
        failed = await soon(deployment.wait(job.id))
        assert (failed.state, len(failed.pictures)) == ("failed", 1)
        assert failed.report is not None
        assert (failed.report.failed, failed.report.executed) == (node, ("1",))
        job = await handed_in(deployment)
        await puppet.told(RunWorkflow)
        await deployment.cancel(job.id)
        await puppet.told(Stop)
        puppet.say(Stopped(job_id=job.id))
        assert (await soon(deployment.wait(job.id))).state == "cancelled"


async def test_followers_hear_of_their_own_and_how_things_stand(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start) as deployment:
        puppet = await stage.next()
        job = await handed_in(deployment)
        work = await puppet.told(RunWorkflow)
        for value in (1, 2):
            puppet.say(news(work, "progressed", node="1", value=value, maximum=2))
        await until(
            lambda: any(e.news and e.news.value == 2 for e in deployment._scheduler._current_events())
        )
        with deployment.follow(client="bob") as bobs, deployment.follow(client="ann") as anns:
            bob = await handed_in(deployment, "bob")
            (first,) = await _take(bobs, 1)
            assert (first.job.id, first.job.state) == (bob.id, "queued")
            standing = (await _take(anns, 1))[0]
            assert standing.news is not None
            assert (standing.job.id, standing.news.value) == (job.id, 2)


async def test_a_slow_follower_misses_steps_and_one_far_behind_is_left() -> None:
    bus = EventBus(lambda: ())
    job = _job("ann")
    step = NodeNews(job_id=job.id, happened="progressed", node="1", maximum=9)
    with bus.subscribe("ann") as happenings, bus.subscribe("bob") as others:
        for value in range(9):
            bus.publish(JobEvent(job, step.model_copy(update={"value": value})))
        (only,) = await _take(happenings, 1)
        assert only.news is not None
        assert only.news.value == 8
        for _ in range(MAX_UNREAD + 1):
            bus.publish(JobEvent(job))
        assert len([one async for one in happenings]) == MAX_UNREAD + 1
        bus.close()
        assert [one async for one in others] == []


async def test_a_picture_for_workflows_has_the_bounds_of_any_other(deployed: OpenDeployment) -> None:
    admission = WorkflowAdmission(
        Registry([SAVE]), models=("emoji",), limits=RequestLimits(max_given_bytes=10)
    )
    async with deployed(Stage(None).start) as deployment:
        desk = DeploymentWorkflowService(deployment, deployment._queue, admission)
        with pytest.raises(RequestError, match="image: is 11 bytes, the limit is 10"):
            await desk.upload(FILE, b"x" * 11, client="ann")
        assert await desk.upload(FILE, b"x" * 10, client="ann") == FILE


async def test_a_client_may_have_given_more_pictures_than_are_listed(
    deployed: OpenDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_LISTED", 2)
    async with deployed(Stage(None).start) as deployment:
        admission = WorkflowAdmission(load_registry(), models=("emoji",))
        desk = DeploymentWorkflowService(deployment, deployment._queue, admission)
        for name in ("apple.png", "bear.png", "cat.png"):
            await desk.upload(PictureFile(filename=name, subfolder="of", type="input"), b"x", client="ann")
        info = await desk.object_info(client="ann", name="LoadImage")
        assert info["LoadImage"]["input"]["required"]["image"][0] == ["of/apple.png", "of/bear.png"]

        async def read(name: str, client: str = "ann") -> Job:
            prompt = {
                "1": {"class_type": "LoadImage", "inputs": {"image": name}},
                "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0]}},
            }
            return (await desk.submit(WorkflowSubmission(prompt=prompt), client=client)).job

        for name in ("of/cat.png", "of\\cat.png", "of/cat.png [input]"):
            assert (await read(name)).state == "queued"
        with pytest.raises(WorkflowRefusedError, match=r"did you mean 'of/apple\.png'"):
            await read("of/aple.png")
        for name, client in (("of/cat.png", "bob"), ("of/\ud800.png", "ann")):
            with pytest.raises(WorkflowRefusedError, match="is not one of the choices"):
                await read(name, client)


async def test_quotas_and_bad_graphs(deployed: OpenDeployment) -> None:
    class Few:
        def max_queued(self, client: str) -> int | None:  # noqa: ARG002
            return 1

        def spend(self, client: str, pictures: int) -> None:
            if pictures > 1:
                raise QueueFullError(f"{client} asks for {pictures}", 1.0)

        def refund(self, client: str, pictures: int) -> None: ...

    # A worker that never says hello: everything waits.
    async with deployed(Stage(None).start, quotas=Few()) as deployment:
        await handed_in(deployment)
        with pytest.raises(QueueFullError, match="the limit for one client is 1"):
            await handed_in(deployment)
        for bad, error, words in (
            ({"prompt": {**GRAPH, "2": GRAPH["1"]}}, QueueFullError, "asks for 2"),
            ({"prompt": {"1": {"class_type": "Sav"}}}, WorkflowRefusedError, "there is no node 'Sav'"),
            ({"prompt": GRAPH, "extra_data": {"x": "y" * 4 * 2**20}}, RequestError, "the limit is"),
        ):
            with pytest.raises(error, match=words):
                await desk_of(deployment).submit(WorkflowSubmission(**bad), client="bob")


async def test_a_graph_counts_as_the_pictures_it_saves(deployed: OpenDeployment, tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "keys")
    keys.create("ann", pictures_per_minute=63)
    prompt = {
        "1": {"class_type": "EmptyLatentImage", "inputs": {"batch_size": 1}},
        "2": {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["1", 0], "amount": 64}},
        "3": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "emoji"}},
        "4": {"class_type": "VAEDecode", "inputs": {"samples": ["2", 0], "vae": ["3", 2]}},
        "5": {"class_type": "SaveImage", "inputs": {"images": ["4", 0]}},
    }
    async with deployed(Stage(None).start, quotas=keys) as deployment:
        admission = WorkflowAdmission(load_registry(), models=("emoji",))
        desk = DeploymentWorkflowService(deployment, deployment._queue, admission)
        with pytest.raises(RequestError, match="64 images at once, the limit of 'ann' is 63 a minute"):
            await desk.submit(WorkflowSubmission(prompt=prompt), client="ann")


async def test_a_part_that_will_not_run_says_nothing_of_the_rest(deployed: OpenDeployment) -> None:
    prompt = {
        "1": {"class_type": "SolidMask", "inputs": {"width": 64, "height": 64}},
        "2": {"class_type": "MaskToImage", "inputs": {"mask": ["1", 0]}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0]}},
        "4": {
            "class_type": "EmptyLatentImage",
            "inputs": {"batch_size": "abc", "width": 16384, "height": 16384},
        },
        "5": {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["4", 0], "amount": "x"}},
        "6": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0]}},
        "7": {"class_type": "PreviewImage", "inputs": {"images": ["6", 0]}},
    }
    async with deployed(Stage(None).start) as deployment:
        admission = WorkflowAdmission(load_registry(), models=("emoji",))
        desk = DeploymentWorkflowService(deployment, deployment._queue, admission)
        accepted = await desk.submit(WorkflowSubmission(prompt=prompt), client="ann")
        assert set(accepted.node_errors) == {"4", "5", "6"}


async def test_pictures_that_nobody_could_tell_beforehand_count_when_they_are_saved(
    deployed: OpenDeployment, tmp_path: Path
) -> None:
    keys = ApiKeys(tmp_path / "keys", monotonic=lambda: 0.0)
    keys.create("ann", pictures_per_minute=3)
    stage = Stage(Puppet.greet)
    async with deployed(stage.start, quotas=keys) as deployment:
        puppet = await stage.next()
        job = await handed_in(deployment)
        work = await puppet.told(RunWorkflow)
        puppet.say(saved(work, "a", "b"), b"picture", b"another")
        puppet.say(WorkflowFinished(job_id=job.id))
        assert len((await soon(deployment.wait(job.id))).pictures) == 2
        # One was counted when it was handed in and one when it was saved: there is room for one more.
        job = await handed_in(deployment)
        work = await puppet.told(RunWorkflow)
        puppet.say(saved(work, "c", "d"), b"picture", b"another")
        assert (await puppet.told(Stop)).job_id == job.id
        # It may have come further meanwhile.
        puppet.say(WorkflowFinished(job_id=job.id))
        failed = await soon(deployment.wait(job.id))
        assert (failed.state, failed.pictures) == ("failed", ())
        assert failed.failure is not None
        assert failed.failure.message == (
            "node 1 (Save): 1 images were counted at admission and 2 are saved: "
            "'ann' may request 3 images a minute and has 0 left; try again later"
        )
        assert failed.report is not None
        assert failed.report.failed is not None
        assert failed.report.failed.node == "1"


async def _take(happenings: AsyncIterator[JobEvent], number: int) -> list[JobEvent]:
    return [await soon(anext(happenings)) for _ in range(number)]


def _job(client: str) -> Job:
    return Job(
        id="j",
        kind="workflow",
        client=client,
        state="running",
        model="",
        request={},
        priority=0,
        position=None,
        created_at=0,
        started_at=0,
        ended_at=None,
        deadline_at=None,
        steps_done=0,
        steps_total=0,
        attempts=1,
        pictures=(),
        failure=None,
        idempotency_key=None,
    )
