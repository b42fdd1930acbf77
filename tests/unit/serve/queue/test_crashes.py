"""After kill -9: every accepted job is there once, every finished one with its pictures, nothing else is."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from threading import Timer

import pytest

from calotype.serve.queue.blob_store import blob_name
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository.rows import Counts
from calotype.spec.job import Job, JobState
from tests.unit.serve.queue import victim
from tests.unit.serve.queue.conftest import OpenQueue, asked, picture

pytestmark = pytest.mark.anyio
KILLS = 10


def run_and_kill(folder: Path, lines: int) -> list[tuple[str, str]]:
    """What a server had promised when it was killed, after so many promises or a few more."""
    command = [sys.executable, str(Path(victim.__file__)), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # One that stands still is killed, too, and has not said enough.
        limit = Timer(120, process.kill)
        limit.start()
        said = [process.stdout.readline() for _ in range(lines)]
        limit.cancel()
        assert all(said), said[-3:]
        process.kill()
        # What it had said before it died counts, too; a line cut short was not said.
        said += process.stdout.read().splitlines(keepends=True)
    promises = [line.split() for line in said if line.endswith("\n")]
    return [(word, job_id) for word, job_id in promises]


async def test_killed_again_and_again(tmp_path: Path) -> None:
    promised: list[tuple[str, str]] = []
    chance = random.Random(7)
    for _ in range(KILLS):
        promised += run_and_kill(tmp_path, chance.randrange(1, 120))
    accepted = Counter(job_id for word, job_id in promised if word == "accepted")
    done = Counter(job_id for word, job_id in promised if word == "done")
    assert max(done.values()) == 1
    async with JobQueue(tmp_path) as queue:
        jobs = await everything(queue, "queued") + await everything(queue, "done")
        found = Counter(job.id for job in jobs)
        assert max(found.values()) == 1
        # One that was on disk when its server died before it could say so may be there as well.
        assert set(accepted) <= set(found)
        states = {job.id: job.state for job in jobs}
        assert {states[job_id] for job_id in done} == {"done"}
        assert {job.state for job in await queue.jobs(limit=1000)} <= {"queued", "done"}
        wanted = set()
        for job in jobs:
            for index, made in enumerate(job.pictures):
                assert blob_name(await queue.picture(job.id, index)) == made.sha256
                wanted.add(made.sha256)
        assert {path.name for path in (tmp_path / "pictures").iterdir()} == wanted


async def everything(queue: JobQueue, state: JobState) -> list[Job]:
    jobs: list[Job] = []
    while page := await queue.jobs(state=state, limit=1000, before=jobs[-1].id if jobs else None):
        jobs += page
    return jobs


async def test_what_ran_is_queued_again_until_it_was_lost_too_often(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked("it"))
        waiting = await queue.submit(asked("waiting"))
        await queue.claim(1)
    for attempts, alone in ((1, False), (2, True)):
        async with open_queue() as queue:
            assert [back.id for back in queue.recovered] == [job.id]
            back = await queue.job(job.id)
            assert (back.state, back.position, back.attempts) == ("queued", 0, attempts)
            assert queue.counts == Counts(queued=2, running=0, alone=int(alone))
            (again,) = await queue.claim(1, alone=alone)
            assert again.id == job.id
    async with open_queue() as queue:
        failed = await queue.job(job.id)
        assert (failed.state, failed.attempts) == ("failed", 3)
        assert failed.failure is not None
        assert failed.failure.kind == "worker_lost"
        assert "3 times" in failed.failure.message
        assert (await queue.job(waiting.id)).state == "queued"


async def test_handing_back_is_no_loss(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked())
        for _ in range(5):
            await queue.claim(1)
            (back,) = await queue.requeue([job.id], lost=False)
            assert back.state == "queued"
        assert queue.counts == Counts(queued=1, running=0, alone=0)


async def test_a_wanted_stop_outlives_the_server(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked())
        await queue.claim(1)
        await queue.request_cancel(job.id)
    async with open_queue() as queue:
        assert (await queue.job(job.id)).state == "cancelled"


async def test_strays_of_a_crash_are_swept(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked())
        await queue.claim(1)
        await queue.finish(job.id, [picture("kept")])
    pictures = queue.folder / "pictures"
    (pictures / blob_name(b"stray")).write_bytes(b"stray")
    (pictures / ".half-written.part").write_bytes(b"st")
    async with open_queue() as queue:
        assert [path.name for path in pictures.iterdir()] == [blob_name(b"kept")]
        assert await queue.picture(job.id, 0) == b"kept"
