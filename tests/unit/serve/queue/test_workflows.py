"""Workflows in the queue: their places, their pictures by name, what was given for them, older databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError, RequestError
from calotype.serve.queue.blob_store import blob_name
from calotype.serve.queue.migrations import MIGRATIONS, migrate
from calotype.serve.queue.queue import GeneratedImage, JobQueue
from calotype.serve.queue.repository.complete import Completion
from calotype.serve.queue.repository.enqueue import NewJob
from calotype.serve.queue.repository.rows import Counts
from calotype.spec.job import PictureFile, WorkflowReport
from tests.unit.serve.queue.conftest import Hands, OpenQueue, asked

pytestmark = pytest.mark.anyio


def workflow(client: str = "ann", text: str = "g", **knobs: object) -> NewJob:
    request = {"prompt": {"1": text}, "extra_data": {}, "client_id": None, "outputs": ["1"]}
    return NewJob(kind="workflow", client=client, model="", request=request, **knobs)  # type: ignore[arg-type]


def file(name: str, kind: str = "output", subfolder: str = "") -> PictureFile:
    return PictureFile.model_validate({"filename": name, "subfolder": subfolder, "type": kind})


def made(text: str, name: str) -> GeneratedImage:
    return GeneratedImage(text.encode(), 8, 8, file=file(name))


async def order(queue: JobQueue, client: str | None = None) -> list[str]:
    waiting = await queue.jobs(state="queued", client=client)
    return [job.id for job in sorted(waiting, key=lambda job: job.position or 0)]


async def test_a_queue_of_the_first_version_is_brought_up_to_date(
    open_queue: OpenQueue, tmp_path: Path
) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    connection = sqlite3.connect(folder / "jobs.sqlite", isolation_level=None)
    migrate(connection, MIGRATIONS[:1])
    for number, state in enumerate(("done", "running", "queued", "queued"), start=1):
        connection.execute(
            """
            INSERT INTO jobs (id, client, state, model, request, digest, priority, turn, cost, created_at,
                              steps_total, end_order)
            VALUES (?, 'ann', ?, 'emoji', '{"prompt": "p", "steps": 4}', 'd', 0, 1, 1, 1000000.0, 4, ?)
            """,
            (f"old{number}", state, number if state == "done" else None),
        )
    connection.close()
    async with open_queue() as queue:
        assert [(job.kind, job.preset) for job in await queue.jobs()] == [("pictures", None)] * 4
        assert await order(queue) == ["old2", "old3", "old4"]
        new = await queue.submit(workflow())
        assert (new.kind, new.sequence, new.position) == ("workflow", 5, 3)
        claimed = await queue.claim(10, workflows=1)
        assert [job.id for job in claimed] == ["old2", "old3", "old4", new.id]
    connection = sqlite3.connect(folder / "jobs.sqlite")
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
    connection.close()


async def test_kinds_are_claimed_by_their_own_number(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        flows = [await queue.submit(workflow()) for _ in range(3)]
        plain = await queue.submit(asked())
        claimed = await queue.claim(5, workflows=1)
        assert [job.id for job in claimed] == [plain.id, flows[0].id]
        assert queue.counts == Counts(queued=2, running=2, alone=0)
        assert await queue.unended("workflow") == 3
        assert await queue.unended("workflow", "bob") == 0
        assert [job.id for job in await queue.jobs(kind="pictures")] == [plain.id]


async def test_jobs_trade_places_and_nobody_else_comes_earlier_or_later(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        a1, b1, a2, b2, a3 = [
            await queue.submit(asked(client=who)) for who in ("ann", "bob", "ann", "bob", "ann")
        ]
        assert await order(queue) == [a1.id, b1.id, a2.id, b2.id, a3.id]
        moved = await queue.move(a3.id, a1.id, "ann")
        assert moved.position == 0
        assert await order(queue) == [a3.id, b1.id, a1.id, b2.id, a2.id]
        await queue.move(a3.id, None, "ann")
        assert await order(queue) == [a1.id, b1.id, a2.id, b2.id, a3.id]
        # For an admin all are one row.
        await queue.move(b2.id, a1.id)
        assert await order(queue) == [b2.id, a1.id, b1.id, a2.id, a3.id]
        with pytest.raises(NotFoundError):
            await queue.move(a1.id, b2.id, "ann")
        (running,) = await queue.claim(1)
        assert running.id == b2.id
        for job_id, before in ((running.id, None), (a1.id, running.id)):
            with pytest.raises(RequestError, match="only waiting jobs"):
                await queue.move(job_id, before)
    async with open_queue() as queue:
        assert await order(queue) == [b2.id, a1.id, b1.id, a2.id, a3.id]


async def test_a_job_can_move_in_front_of_a_higher_priority(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        low, high = await queue.submit(asked()), await queue.submit(asked(priority=5))
        assert await order(queue) == [high.id, low.id]
        assert (await queue.move(low.id, high.id, "ann")).priority == 5
        assert await order(queue) == [low.id, high.id]


async def test_numbers_and_the_front(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        other = await queue.submit(workflow("bob"))
        first = await queue.submit(workflow())
        front = await queue.submit(workflow(front=True))
        before = await queue.submit(workflow(number=0.5))
        foremost = await queue.submit(workflow(front=True))
        last = await queue.submit(workflow(number=10.0**6))
        assert await order(queue, "ann") == [foremost.id, front.id, before.id, first.id, last.id]
        assert (await order(queue))[0] == other.id


async def test_an_id_stands_for_one_job(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(workflow(id="mine"))
        assert job.id == "mine"
        assert (await queue.submit(workflow(id="mine"))).sequence == job.sequence
        for other in (workflow(id="mine", text="else"), workflow("bob", id="mine")):
            with pytest.raises(RequestError, match="id of another job"):
                await queue.submit(other)


async def test_pictures_are_there_by_name_as_soon_as_they_are_kept(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(workflow())
        assert await queue.keep(job.id, [made("early", "a.png")]) is None, "it does not run yet"
        await queue.claim(0, workflows=1)
        (kept,) = await queue.keep(job.id, [made("early", "a.png")]) or ()
        assert await queue.named(file("a.png"), "ann") == b"early"
        # Its worker died, and the next one makes another picture of the same name.
        await queue.requeue([job.id], lost=True)
        await queue.claim(0, workflows=1)
        (kept,) = await queue.keep(job.id, [made("late", "a.png")]) or ()
        report = WorkflowReport(outputs={"9": {"images": [file("a.png").model_dump()]}}, executed=("9",))
        ended = await queue.end(job.id, Completion("done", (kept,), report=report))
        assert ended is not None
        assert await queue.keep(job.id, [made("too late", "a.png")]) is None
    async with open_queue() as queue:
        again = await queue.job(job.id)
        assert (again.report, again.pictures) == (report, (kept,))
        assert await queue.named(file("a.png"), "ann") == b"late"
        with pytest.raises(NotFoundError):
            await queue.named(file("a.png"), "bob")
        await queue.delete(job.id)
        with pytest.raises(NotFoundError):
            await queue.named(file("a.png"), "ann")
        assert list((queue.folder / "pictures").iterdir()) == []


async def test_given_pictures_stay_for_those_who_wait_for_them(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        name = file("in.png", "input")
        assert await queue.upload("ann", name, b"first") == name
        assert await queue.upload("ann", name, b"first") == name
        assert (await queue.upload("ann", name, b"second")).filename == "in (1).png"
        assert await queue.upload("bob", name, b"bob's") == name
        assert await queue.missing("ann", {"in.png": name, "no.png": file("no.png", "input")}) == ["no.png"]
        job = await queue.submit(workflow(inputs={"in.png": name}))
        assert await queue.upload("ann", name, b"third", overwrite=True) == name
        await queue.remove_upload("ann", name)
        with pytest.raises(NotFoundError):
            await queue.named(name, "ann")
    async with open_queue() as queue:
        (running,) = await queue.claim(0, workflows=1)
        assert await queue.given(running) == {"in.png": b"first"}
        await queue.end(job.id, Completion("done", report=WorkflowReport()))
        left = {path.name for path in (queue.folder / "pictures").iterdir()}
        assert left == {blob_name(b"second"), blob_name(b"bob's")}
        with pytest.raises(NotFoundError):
            await queue.submit(workflow(inputs={"in.png": name}))
        assert await queue.unended("workflow") == 0


async def test_given_pictures_are_forgotten_when_they_are_old_or_too_many(
    open_queue: OpenQueue, hands: Hands
) -> None:
    async with open_queue(max_age_s=100.0, max_upload_bytes=10) as queue:
        for number in range(3):
            await queue.upload("ann", file(f"{number}.png", "input"), bytes([number]) * 4)
            hands.pass_(1)
        await queue.delete_expired()
        assert [upload.file.filename for upload in await queue.uploads("ann")] == ["1.png", "2.png"]
        hands.pass_(98.5)
        await queue.delete_expired()
        assert [upload.file.filename for upload in await queue.uploads("ann")] == ["2.png"]
        hands.pass_(100)
        await queue.delete_expired()
        assert list((queue.folder / "pictures").iterdir()) == []
