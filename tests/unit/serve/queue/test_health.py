"""A database that is deleted, replaced or damaged while the queue is open, and a disk that refuses writes."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.replacement import DATABASE, damage_folders
from calotype.serve.service import UnavailableError
from calotype.spec.job import Job, PictureFile
from tests.unit.serve.queue.conftest import asked, picture

pytestmark = pytest.mark.anyio
CAT = PictureFile(filename="cat.png", subfolder="", type="input")


def delete(folder: Path) -> None:
    for path in folder.glob(f"{DATABASE}*"):
        path.unlink()


def replace(folder: Path) -> None:
    """As somebody does who restores an old copy under a running server."""
    with closing(sqlite3.connect(folder / "old.sqlite")) as old:
        old.execute("CREATE TABLE colors (name TEXT)")
    (folder / "old.sqlite").replace(folder / DATABASE)


async def with_jobs(queue: JobQueue) -> tuple[Job, Job, Job]:
    """One that is done, one that runs and one that waits."""
    done = await queue.submit(asked("done"))
    await queue.claim(1)
    await queue.finish(done.id, [picture("first")])
    running = await queue.submit(asked("running"))
    await queue.claim(1)
    return done, running, await queue.submit(asked("waiting"))


@pytest.mark.parametrize("harm", [delete, replace])
async def test_a_database_that_is_gone_accepts_nothing_and_loses_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    async with JobQueue(tmp_path) as queue:
        done, running, waiting = await with_jobs(queue)
        assert (queue.refusal, queue.broken) == (None, None)
        harm(tmp_path)
        with pytest.raises(UnavailableError, match=r"jobs\.sqlite was (deleted|replaced).*start it again"):
            await queue.submit(asked("too late"))
        with pytest.raises(UnavailableError, match="no more jobs are accepted"):
            await queue.upload("ann", CAT, b"a cat")
        assert queue.refusal == queue.broken
        assert "no more jobs are accepted" in str(queue.refusal)
        # What is accepted goes on.
        assert (await queue.job(done.id)).state == "done"
        await queue.finish(running.id, [picture("second")])
        assert await queue.picture(running.id, 0) == b"second"
    async with JobQueue(tmp_path) as queue:
        assert queue.refusal is None
        states = {job.id: job.state for job in await queue.jobs()}
        assert states == {done.id: "done", running.id: "done", waiting.id: "queued"}
        assert await queue.picture(done.id, 0) == b"first"
        assert await queue.picture(running.id, 0) == b"second"
        (where,) = damage_folders(tmp_path)
        (notice,) = queue.notices
        assert where.name in notice
        assert "while the deployment ran" in notice
        assert (where / DATABASE).exists() == (harm is replace)
        assert (await queue.submit(asked("again"))).state == "queued"


@pytest.mark.parametrize("harm", [delete, replace])
async def test_a_look_at_the_disk_notices_it_and_a_kill_then_loses_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = tmp_path / "queue"
    async with JobQueue(folder) as queue:
        done, running, waiting = await with_jobs(queue)
        harm(folder)
        await queue.check_disk()
        assert "no more jobs are accepted" in str(queue.refusal)
        # What a kill at this moment leaves.
        shutil.copytree(folder, tmp_path / "killed")
    async with JobQueue(tmp_path / "killed") as queue:
        states = {job.id: job.state for job in await queue.jobs()}
        assert states == {done.id: "done", running.id: "queued", waiting.id: "queued"}
        assert await queue.picture(done.id, 0) == b"first"


async def test_damage_is_found_by_reading_the_whole_database(tmp_path: Path) -> None:
    async with JobQueue(tmp_path) as queue:
        for number in range(60):
            await queue.submit(asked(f"{number} {'p' * 400}"))
    async with JobQueue(tmp_path) as queue:
        await queue.check_database()
        assert queue.refusal is None
        data = (tmp_path / DATABASE).read_bytes()
        page = data.index(b'"30 ppp') // 4096
        with (tmp_path / DATABASE).open("r+b") as file:
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
        # No query has read that page yet.
        assert queue.refusal is None
        await queue.check_database()
        assert "is damaged" in str(queue.refusal)
        with pytest.raises(UnavailableError, match=r"is damaged .*no more jobs are accepted.*start it again"):
            await queue.submit(asked("too late"))
        await queue.check_disk()
        assert "is damaged" in str(queue.broken)
    async with JobQueue(tmp_path) as queue:
        assert queue.refusal is None
        assert 40 < len(await queue.jobs(limit=100)) < 60
        assert "copied" in queue.notices[0]


async def test_a_disk_that_refuses_is_noticed_and_comes_back(tmp_path: Path) -> None:
    async with JobQueue(tmp_path) as queue:
        await queue.check_disk()
        assert queue.refusal is None
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**13, before[1]))
        try:
            with pytest.raises(UnavailableError):
                await queue.submit(asked("no room " + "p" * 100_000))
            assert queue.check_wanted.is_set()
            await queue.check_disk()
            assert "refuses writes (File too large)" in str(queue.refusal)
            assert str(tmp_path) not in str(queue.refusal)
            assert queue.broken is None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await queue.check_disk()
        assert queue.refusal is None
        assert (await queue.submit(asked("room"))).state == "queued"
        assert not (tmp_path / ".probe").exists()


async def test_one_submission_that_is_too_large_for_the_disk_does_not_make_it_unready(tmp_path: Path) -> None:
    async with JobQueue(tmp_path) as queue:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
        try:
            with pytest.raises(UnavailableError):
                await queue.submit(asked(), [b"x" * 2**21])
            assert queue.check_wanted.is_set()
            await queue.check_disk()
            assert queue.refusal is None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_check_ends_with_the_queue(tmp_path: Path) -> None:
    queue = JobQueue(tmp_path)
    await queue.submit(asked())
    await queue.close()
    await queue.check_disk()
    await queue.check_database()
    assert queue.refusal is None
