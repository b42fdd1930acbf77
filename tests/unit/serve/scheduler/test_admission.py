"""What is refused before it is queued, in which words; models, quotas and given pictures."""

from __future__ import annotations

import asyncio
import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from calotype.core.errors import CalotypeError, DoesNotFitError, NotFoundError, RequestError
from calotype.serve.api_keys import ApiKeys
from calotype.serve.ipc.messages import Load, LoadedModel, ModelFailed, Models, Unload, Work
from calotype.serve.queue.blob_store import blob_name
from calotype.serve.request_parsing import parse_submission
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.service import QueueFullError, UnavailableError, WorkerStatus
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.job import JobFailure
from tests.unit.serve.scheduler.conftest import (
    EMOJI,
    OpenDeployment,
    Puppet,
    Stage,
    asking,
    metric,
    soon,
    until,
)

pytestmark = pytest.mark.anyio
OTHER = LoadedModel(name="other", architecture="sd15", sha256="0" * 64, random=True, bytes=1)


def png(width: int = 8, height: int = 8) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


async def ready(deployment: Deployment) -> None:
    await until(lambda: all(worker.state == "ready" for worker in deployment.status().workers))


async def test_everything_over_a_limit_is_said_at_once(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    limits = {"max_pixels": 4096, "max_count": 3, "max_steps": 10, "max_given_pixels": 100}
    async with deployed(stage.start, settings={"limits": limits}) as deployment:
        with pytest.raises(RequestError) as refused:
            await deployment.submit(
                asking(width=128, height=64, count=4, steps=11),
                client="ann",
                image=png(20, 10),
                mask=b"<svg/>",
            )
        said = {problem.field: problem.message for problem in refused.value.problems}
        assert said == {
            "request.width": "128×64 is 8192 pixels, the limit here is 4096; make it smaller",
            "request.count": "4 images, the limit of one job here is 3; send several jobs",
            "request.steps": "11 steps, the limit here is 10",
            "image": "is 20×10, the limit here is 100 pixels; scale it down",
            "mask": "is not a PNG, WEBP, JPEG that can be read",
        }
        with pytest.raises(RequestError, match="512×64 is 32768 pixels"):
            await deployment.submit(asking(height=64), client="ann")
        assert await deployment.jobs() == []
        assert metric(deployment, "calotype_jobs_refused_total", reason="RequestError") == 2
        ok = await deployment.submit(asking(width=64, height=64, count=3, steps=10), client="ann")
        assert ok.state == "queued"


async def test_a_file_that_is_too_large_is_not_even_read(deployed: OpenDeployment) -> None:
    async with deployed(settings={"limits": {"max_given_bytes": 10}}) as deployment:
        with pytest.raises(UnavailableError):
            await deployment.submit(asking(), client="ann")
    async with deployed(Stage(None).start, settings={"limits": {"max_given_bytes": 10}}) as deployment:
        with pytest.raises(RequestError, match="image: is 11 bytes, the limit here is 10"):
            await deployment.submit(asking(), client="ann", image=b"x" * 11)


async def test_a_bomb_of_a_picture_is_refused(deployed: OpenDeployment) -> None:
    header = png()
    at = header.index(b"IHDR") + 4
    body = b"IHDR" + struct.pack(">II", 100_000, 100_000) + header[at + 8 : at + 13]
    bomb = header[: at - 4] + body + struct.pack(">I", zlib.crc32(body)) + header[at + 17 :]
    async with deployed(Stage(None).start) as deployment:
        with pytest.raises(RequestError, match="image: is too large, the limit here is 67108864 pixels"):
            await deployment.submit(asking(), client="ann", image=bomb)


async def test_given_pictures_go_to_the_worker(deployed: OpenDeployment, tmp_path: Path) -> None:
    stage = Stage(Puppet.greet)
    image, mask = png(16, 8), png(8, 16)
    async with deployed(stage.start) as deployment:
        job = await deployment.submit(asking(), client="ann", image=image, mask=mask)
        assert job.request["image"] == {"path": "(in memory)", "sha256": blob_name(image)}
        worker = await stage.next()
        work = await worker.told(Work)
        assert (work.has_image, work.has_mask) == (True, True)
        assert worker.attachments == [image, mask]
        assert len(list((tmp_path / "pictures").iterdir())) == 2
        worker.finish(work, b"made of both")
        await soon(deployment.wait(job.id))
        assert [path.read_bytes() for path in (tmp_path / "pictures").iterdir()] == [b"made of both"]


async def test_no_file_of_the_servers_can_be_named(deployed: OpenDeployment) -> None:
    async with deployed(Stage(None).start) as deployment:
        named = {"path": "/etc/passwd", "sha256": blob_name(png())}
        with pytest.raises(RequestError, match=r"request\.image: names another image than was sent"):
            await deployment.submit(asking(image=named), client="ann")
        with pytest.raises(RequestError, match=r"request\.image: names another image than was sent"):
            await deployment.submit(asking(image=named), client="ann", image=png(9, 9))
        assert (await deployment.submit(asking(image=named), client="ann", image=png())).state == "queued"


async def test_models_that_nobody_has(deployed: OpenDeployment) -> None:
    def find(name: str) -> None:
        if name != "on disk":
            raise NotFoundError(f"no {name!r} anywhere")

    async with deployed(Stage(None).start) as deployment:
        with pytest.raises(NotFoundError, match="no model 'emojy' here; did you mean 'emoji'"):
            await deployment.submit(asking(model="emojy"), client="ann")
    async with deployed(Stage(None).start, find_model=find) as deployment:
        assert (await deployment.submit(asking(model="on disk"), client="ann")).model == "on disk"
        with pytest.raises(NotFoundError, match="no 'nothing' anywhere"):
            await deployment.submit(asking(model="nothing"), client="ann")


async def test_what_fits_no_worker_is_refused_before_it_waits(deployed: OpenDeployment) -> None:
    room = {"worker0": 64, "worker1": 128}

    def fits(request: GenerateRequest, model: LoadedModel, worker: WorkerStatus) -> None:
        assert model == EMOJI
        if (request.width or 0) > room[worker.name]:
            raise DoesNotFitError(f"{request.width} wide, {worker.name} has room for {room[worker.name]}")

    stages = [Stage(Puppet.greet), Stage(Puppet.greet)]
    async with deployed(*(stage.start for stage in stages), fits=fits) as deployment:
        for stage in stages:
            await stage.next()
        await ready(deployment)
        assert (await deployment.submit(asking(width=128), client="ann")).state == "queued"
        with pytest.raises(DoesNotFitError, match="136 wide"):
            await deployment.submit(asking(width=136), client="ann")
        assert len(await deployment.jobs()) == 1


async def test_a_picture_larger_than_any_worker_holds_is_refused_at_the_door(
    deployed: OpenDeployment,
) -> None:
    def holding(side: int) -> Stage:
        model = EMOJI.model_copy(update={"max_pixels": side * side})
        return Stage(lambda puppet: puppet.greet(models=[model]))

    stages = [holding(64), holding(128)]
    async with deployed(*(stage.start for stage in stages)) as deployment:
        for stage in stages:
            await stage.next()
        await until(lambda: all(worker.models for worker in deployment.status().workers))
        says = r"136×128 is 17408 pixels; worker worker1 with 'emoji' has memory for 16384 .* 128×128 or less"
        with pytest.raises(DoesNotFitError, match=says):
            await deployment.submit(asking(width=136, height=128), client="ann")
        for fits in (asking(width=128, height=128), asking(width=136), asking()):
            assert (await deployment.submit(fits, client="ann")).state == "queued"
        assert len(await deployment.jobs()) == 3


async def test_quotas_of_a_key(deployed: OpenDeployment, tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path, monotonic=lambda: 5.0)
    keys.create("ann", max_queued=2, pictures_per_minute=10)
    async with deployed(Stage(None).start, quotas=keys) as deployment:
        first = await deployment.submit(asking(count=4, idempotency_key="k"), client="ann")
        again = await deployment.submit(asking(count=4, idempotency_key="k"), client="ann")
        assert again.id == first.id
        with pytest.raises(QueueFullError, match="10 images a minute and has 6 left") as refused:
            await deployment.submit(asking(count=9), client="ann")
        assert refused.value.retry_after_s == pytest.approx(18)
        await deployment.submit(asking(count=1), client="ann")
        for _ in range(3):
            # Refused for its length, which gives the pictures back.
            with pytest.raises(QueueFullError, match="the limit for one client is 2"):
                await deployment.submit(asking(count=5), client="ann")
        for _ in range(5):
            await deployment.submit(asking(count=20), client="bob")
        keys.create("cid", pictures_per_minute=4)
        last, again = [
            await deployment.submit(asking(count=4, idempotency_key="k"), client="cid") for _ in range(2)
        ]
        assert last.id == again.id


async def test_loading_and_unloading(deployed: OpenDeployment) -> None:
    stages = [Stage(Puppet.greet), Stage(Puppet.greet)]
    async with deployed(*(stage.start for stage in stages), find_model=lambda _: None) as deployment:
        workers = [await stage.next() for stage in stages]
        await ready(deployment)
        loading = asyncio.create_task(deployment.load_model("other"))
        for worker in workers:
            assert (await worker.told(Load)).model == "other"
            # Others are let go first, which is no answer.
            worker.say(Models(models=(), memory_bytes=1000, free_bytes=1000))
            worker.say(Models(models=(OTHER,), memory_bytes=1000, free_bytes=999))
        assert await soon(loading) == [OTHER]
        # Whoever comes after a dead one has it too.
        workers[0].die()
        workers[0] = await stages[0].next()
        assert (await workers[0].told(Load)).model == "other"
        workers[0].say(Models(models=(EMOJI, OTHER), memory_bytes=1000, free_bytes=1))
        unloading = asyncio.create_task(deployment.unload_model("other"))
        for worker in workers:
            assert (await worker.told(Unload)).model == "other"
            worker.say(Models(models=(EMOJI,), memory_bytes=1000, free_bytes=1))
        assert await soon(unloading) == [EMOJI]


async def test_another_name_of_the_same_model(deployed: OpenDeployment) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start, find_model=lambda _: None) as deployment:
        worker = await stage.next()
        await ready(deployment)
        loading = asyncio.create_task(deployment.load_model("emoji-copy"))
        await worker.told(Load)
        worker.say(Models(models=(EMOJI,), memory_bytes=1000, free_bytes=1, asked="emoji-copy"))
        assert await soon(loading) == [EMOJI]


@pytest.mark.parametrize(
    ("kind", "error"),
    [("not_found", NotFoundError), ("does_not_fit", DoesNotFitError), ("internal", CalotypeError)],
)
async def test_a_model_that_cannot_be_loaded(
    deployed: OpenDeployment, kind: str, error: type[CalotypeError]
) -> None:
    stage = Stage(Puppet.greet)
    async with deployed(stage.start, find_model=lambda _: None) as deployment:
        worker = await stage.next()
        await ready(deployment)
        loading = asyncio.create_task(deployment.load_model("other"))
        await worker.told(Load)
        failure = JobFailure.model_validate({"kind": kind, "message": "it is broken"})
        worker.say(ModelFailed(model="other", failure=failure))
        with pytest.raises(error, match="it is broken"):
            await soon(loading)
        dying = asyncio.create_task(deployment.load_model("other"))
        await worker.told(Load)
        worker.die()
        with pytest.raises(UnavailableError, match="worker0 died"):
            await soon(dying)


def test_the_server_needs_no_torch() -> None:
    program = "import sys, calotype.serve.scheduler.deployment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=300).returncode == 0


def test_an_unknown_preset_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(RequestError) as refused:
        parse_submission({"request": {"prompt": "p"}, "preset": "fats"})
    (problem,) = refused.value.problems
    known = "baseline, cached, fast, fp8, int8, int8-static, low-memory, max-throughput"
    assert (problem.field, problem.value) == ("preset", "fats")
    assert problem.message == f"'fats' is no preset; did you mean 'fast'? known: {known}"
    with pytest.raises(RequestError, match=f"preset: '1' is no preset; known: {known}$"):
        parse_submission({"request": {"prompt": "p"}, "preset": "1"})
    with pytest.raises(RequestError, match="preset: 1: input should be a valid string"):
        parse_submission({"request": {"prompt": "p"}, "preset": 1})
