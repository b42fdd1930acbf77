"""A real database with 150 jobs, damaged in many ways: what can be read is there after the next start."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError
from calotype.serve.queue import replacement
from calotype.serve.queue.queue import GeneratedImage, JobQueue
from calotype.serve.queue.replacement import DATABASE, damage_folders
from calotype.spec.job import Job, PictureFile
from tests.unit.serve.queue.conftest import asked

pytestmark = pytest.mark.anyio
PAGE = 4096
JOBS, DONE = 150, 5


@dataclass(frozen=True)
class Kept:
    """A queue as it was before the damage."""

    folder: Path
    jobs: dict[str, Job]
    pictures: dict[str, bytes]

    def copy(self, folder: Path) -> Path:
        shutil.copytree(self.folder, folder)
        return folder


async def filled(folder: Path) -> Kept:
    """A closed queue: some jobs are done, others wait, and a client has an upload."""
    async with JobQueue(folder) as queue:
        for number in range(DONE):
            done = await queue.submit(asked(f"done {number}"))
            await queue.claim(1)
            await queue.finish(done.id, [GeneratedImage(f"pixels {number}".encode(), 64, 48, number)])
        await asyncio.gather(
            *(queue.submit(asked(f"{number} {'p' * 300}")) for number in range(JOBS - DONE)),
        )
        await queue.upload("ann", PictureFile(filename="cat.png", subfolder="", type="input"), b"a cat")
        jobs = {job.id: job for job in await queue.jobs(limit=1000)}
        pictures = {job.id: await queue.picture(job.id, 0) for job in jobs.values() if job.state == "done"}
    assert len(jobs) == JOBS
    return Kept(folder, jobs, pictures)


@pytest.fixture
async def kept(tmp_path: Path) -> Kept:
    return await filled(tmp_path / "kept")


async def found_again(kept: Kept, folder: Path) -> dict[str, Job]:
    """The jobs after a start. Each one is as it was, with its pictures; the rest is kept beside."""
    damaged = (folder / DATABASE).read_bytes()
    async with JobQueue(folder) as queue:
        jobs = {job.id: job for job in await queue.jobs(limit=1000)}
        for job in jobs.values():
            before = kept.jobs[job.id]
            assert job == before.model_copy(update={"position": job.position})
            if job.id in kept.pictures:
                assert await queue.picture(job.id, 0) == kept.pictures[job.id]
        (where,) = damage_folders(folder)
        assert (where / DATABASE).read_bytes() == damaged
        pictures = [path.read_bytes() for path in folder.rglob("pictures/*")]
        assert sorted(pictures) == sorted([*kept.pictures.values(), b"a cat"])
        (notice,) = queue.notices
        assert where.name in notice
        if jobs:
            assert f"{len(jobs)} job" in notice
        lost = next((job_id for job_id in kept.jobs if job_id not in jobs), None)
        if lost is not None:
            with pytest.raises(NotFoundError, match=rf"could not be read.*{where.name}"):
                await queue.job(lost)
        # It is a queue like any other.
        new = await queue.submit(asked("afterwards"))
        assert (await queue.job(new.id)).state == "queued"
    async with JobQueue(folder) as queue:
        assert len(await queue.jobs(limit=1000)) == len(jobs) + 1
        assert len(damage_folders(folder)) == 1
    return jobs


def overwritten(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def pages_with(database: Path, text: bytes) -> list[int]:
    data = database.read_bytes()
    return [
        number for number in range(len(data) // PAGE) if text in data[number * PAGE : (number + 1) * PAGE]
    ]


async def test_one_bad_page_takes_its_own_rows_with_it_and_no_other(kept: Kept, tmp_path: Path) -> None:
    folder = kept.copy(tmp_path / "damaged")
    (page,) = pages_with(folder / DATABASE, b'"70 pppp')
    inside = {
        job_id
        for job_id, job in kept.jobs.items()
        if page in pages_with(folder / DATABASE, b'"' + job.request["prompt"].encode() + b'"')
    }
    assert 2 < len(inside) < 20
    overwritten(folder / DATABASE, page * PAGE, b"\xff" * PAGE)
    jobs = await found_again(kept, folder)
    assert set(jobs) == set(kept.jobs) - inside


async def test_rows_between_bad_pages_are_found(kept: Kept, tmp_path: Path) -> None:
    folder = kept.copy(tmp_path / "damaged")
    pages = [
        page
        for text in (b'"40 pppp', b'"100 pppp', b'"144 pppp')
        for page in pages_with(folder / DATABASE, text)
    ]
    between = next(job for job in kept.jobs.values() if job.request["prompt"].startswith("70 pppp"))
    for page in pages:
        overwritten(folder / DATABASE, page * PAGE, bytes(PAGE))
    jobs = await found_again(kept, folder)
    assert between.id in jobs
    assert len(jobs) > JOBS - 40


async def test_a_lost_first_page_loses_no_job(kept: Kept, tmp_path: Path) -> None:
    folder = kept.copy(tmp_path / "damaged")
    overwritten(folder / DATABASE, 0, b"\xff" * PAGE)
    jobs = await found_again(kept, folder)
    assert set(jobs) == set(kept.jobs)


async def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(kept: Kept, tmp_path: Path) -> None:
    folder = kept.copy(tmp_path / "damaged")
    size = (folder / DATABASE).stat().st_size
    with (folder / DATABASE).open("r+b") as file:
        file.truncate(size * 2 // 3 + 100)
    jobs = await found_again(kept, folder)
    assert JOBS // 3 < len(jobs) < JOBS


async def test_what_a_killed_server_had_in_its_log_is_read_too(kept: Kept, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    with closing(sqlite3.connect(kept.folder / DATABASE, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE jobs SET steps_done = 1 WHERE id IN (SELECT id FROM jobs LIMIT 3)")
        # As a kill leaves it: the last change is in the log alone.
        kept.copy(folder)
    assert (folder / f"{DATABASE}-wal").stat().st_size
    (page,) = pages_with(folder / DATABASE, b'"100 pppp')
    overwritten(folder / DATABASE, page * PAGE, b"\xff" * PAGE)
    async with JobQueue(folder) as queue:
        jobs = await queue.jobs(limit=1000)
        assert sum(job.steps_done for job in jobs) == 3
        assert len(jobs) > JOBS - 20


def garbage(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("damage", [lambda size, _: bytes(size), garbage], ids=["zeros", "garbage"])
async def test_any_one_bad_page_leaves_nearly_all_jobs(
    kept: Kept, tmp_path: Path, damage: Callable[[int, int], bytes]
) -> None:
    pages = (kept.folder / DATABASE).stat().st_size // PAGE
    for page in range(0, pages, 3):
        folder = kept.copy(tmp_path / f"damaged-{page}")
        overwritten(folder / DATABASE, page * PAGE, damage(PAGE, page))
        async with JobQueue(folder) as queue:
            # Not every page is in use.
            if not damage_folders(folder):
                assert len(await queue.jobs(limit=1000)) == JOBS
                continue
            jobs = await queue.jobs(limit=1000)
            assert {job.id for job in jobs} <= set(kept.jobs)
            assert len(jobs) >= JOBS - 40, page


async def test_a_process_that_ends_in_the_middle_of_it_loses_nothing(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended at each step that moves a file; the next start finishes the replacement."""
    names = ("finish_later", "sync_folder", "keep_unknown_pictures", "keep_report")
    for number, name in enumerate(names):
        folder = kept.copy(tmp_path / f"damaged-{number}")
        overwritten(folder / DATABASE, 0, b"\xff" * PAGE)
        with monkeypatch.context() as patched:
            patched.setattr(replacement, name, _end)
            with pytest.raises(KeyboardInterrupt):
                JobQueue(folder)
        (folder / ".salvage-left").mkdir()
        (folder / ".jobs.sqlite.unfinished").write_bytes(b"half of it")
        async with JobQueue(folder) as queue:
            assert {job.id for job in await queue.jobs(limit=1000)} == set(kept.jobs)
            for job_id, data in kept.pictures.items():
                assert await queue.picture(job_id, 0) == data
        beside = {path.name for path in folder.iterdir() if not path.name.startswith("damaged-")}
        assert beside == {DATABASE, "pictures", ".lock"}


def _end(*_: object) -> None:
    raise KeyboardInterrupt


async def test_a_notice_ends_when_its_folder_is_deleted(kept: Kept, tmp_path: Path) -> None:
    folder = kept.copy(tmp_path / "damaged")
    overwritten(folder / DATABASE, 0, b"\xff" * PAGE)
    async with JobQueue(folder) as queue:
        (notice,) = queue.notices
        assert re.search(
            rf"damaged .*replaced: {JOBS} jobs copied, 0 not readable; .*delete that folder", notice
        )
        (where,) = damage_folders(folder)
        shutil.rmtree(where)
        await queue.check_disk()
        assert queue.notices == ()


async def test_texts_that_are_no_file_names_are_not_copied(kept: Kept, tmp_path: Path) -> None:
    folder = kept.copy(tmp_path / "damaged")
    precious = tmp_path / "precious"
    precious.write_text("not a picture")
    with closing(sqlite3.connect(folder / DATABASE)) as database, database:
        database.execute("UPDATE uploads SET sha256 = ?", (f"../../{precious.name}",))
        database.execute("UPDATE files SET sha256 = ?", ("../../precious",))
    overwritten(folder / DATABASE, 0, b"\xff" * 100)
    async with JobQueue(folder) as queue:
        assert await queue.uploads() == []
        for job_id in kept.pictures:
            await queue.delete(job_id)
    assert precious.exists()
