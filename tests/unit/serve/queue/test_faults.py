"""A damaged database, a full disk, one that cannot be written, a second server, a database from elsewhere."""

from __future__ import annotations

import asyncio
import logging
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calotype.serve.queue import open_database
from calotype.serve.queue.database import Database
from calotype.serve.queue.migrations import MIGRATIONS, migrate
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.replacement import DATABASE
from calotype.serve.service import DamagedPictureError, UnavailableError
from calotype.spec.job import PictureFile
from tests.unit.serve.queue import victim
from tests.unit.serve.queue.conftest import OpenQueue, asked, picture

pytestmark = pytest.mark.anyio


async def with_history(open_queue: OpenQueue, jobs: int = 60) -> tuple[Path, str]:
    """A folder with one done job and others that wait; and the done one's id."""
    async with open_queue() as queue:
        done = await queue.submit(asked())
        await queue.claim(1)
        await queue.finish(done.id, [picture("precious")])
        await asyncio.gather(*(queue.submit(asked("p" * 500)) for _ in range(jobs)))
    return queue.folder, done.id


def overwrite_all(database: Path) -> None:
    database.write_bytes(b"this is not a database" * 1000)


def overwrite_the_middle(database: Path) -> None:
    data = bytearray(database.read_bytes())
    data[4096 : len(data) // 2] = b"\xff" * (len(data) // 2 - 4096)
    database.write_bytes(data)


def cut_off(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:10_000])


def lose(database: Path) -> None:
    database.unlink()


@pytest.mark.parametrize("damage", [overwrite_all, overwrite_the_middle, cut_off, lose])
async def test_damage_is_said_set_aside_and_outlived(
    open_queue: OpenQueue, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = await with_history(open_queue)
    damage(folder / DATABASE)
    damaged = (folder / DATABASE).read_bytes() if (folder / DATABASE).exists() else None
    async with open_queue() as queue:
        (aside,) = folder.glob("damaged-*")
        (said,) = (record for record in caplog.records if record.levelno == logging.ERROR)
        assert str(aside) in said.getMessage()
        assert [path.read_bytes() for path in (aside / "pictures").iterdir()] == [b"precious"]
        assert ((aside / DATABASE).read_bytes() if damaged else None) == damaged
        assert await queue.jobs() == []
        assert (await queue.submit(asked())).state == "queued"
    async with open_queue() as queue:
        assert len(await queue.jobs()) == 1
        assert len(list(folder.glob("damaged-*"))) == 1


async def test_a_full_disk_refuses_whole_submissions(tmp_path: Path) -> None:
    queue = JobQueue(tmp_path)
    first = await queue.submit(asked())
    (pages,) = await queue._call(lambda c: c.execute("PRAGMA page_count").fetchone())
    await queue._call(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    outcomes = await asyncio.gather(
        *(queue.submit(asked("p" * 3000), [b"given" * 100]) for _ in range(8)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    accepted = {job.id for job in outcomes if not isinstance(job, BaseException)}
    assert refused
    for error in refused:
        assert isinstance(error, UnavailableError)
        assert "full" in str(error)
    assert {job.id for job in await queue.jobs()} == {first.id} | accepted
    await queue._call(lambda c: c.execute("PRAGMA max_page_count = 100000").fetchone())
    again = await queue.submit(asked("p" * 3000))
    await queue.close()
    async with JobQueue(tmp_path) as queue:
        assert {job.id for job in await queue.jobs()} == {first.id, again.id} | accepted


async def test_reading_goes_on_when_nothing_can_be_written(tmp_path: Path) -> None:
    async with JobQueue(tmp_path) as queue:
        job = await queue.submit(asked())
        await queue._read(lambda c: c.execute("PRAGMA query_only = 1").fetchone())
        outcomes = await asyncio.gather(
            queue.submit(asked()), queue.job(job.id), queue.claim(1), queue.jobs(), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [
            UnavailableError,
            type(job),
            UnavailableError,
            list,
        ]
        assert outcomes[1] == job
        await queue._read(lambda c: c.execute("PRAGMA query_only = 0").fetchone())
        assert [claimed.id for claimed in await queue.claim(5)] == [job.id]


async def test_pictures_that_do_not_fit_leave_the_job_unfinished(tmp_path: Path) -> None:
    async with JobQueue(tmp_path) as queue:
        job = await queue.submit(asked())
        await queue.claim(1)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
        try:
            with pytest.raises(UnavailableError, match="File too large"):
                await queue.finish(job.id, [picture("small"), picture("large" * 2**20)])
            with pytest.raises(UnavailableError, match="File too large"):
                await queue.submit(asked("with an image"), [b"x" * 2**21])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert [one.state for one in await queue.jobs()] == ["running"]
        assert list((tmp_path / "pictures").iterdir()) == []
        finished = await queue.finish(job.id, [picture("small")])
        assert finished is not None


async def test_damage_while_it_runs_is_said(open_queue: OpenQueue) -> None:
    folder, _ = await with_history(open_queue)
    async with open_queue() as queue:
        (folder / DATABASE).write_bytes(b"\xff" * (folder / DATABASE).stat().st_size)
        # What it remembers of the file hides the damage for a while.
        await queue._call(lambda c: c.execute("PRAGMA shrink_memory").fetchall())
        with pytest.raises(UnavailableError, match="damaged: start the deployment again"):
            await queue.jobs()
    async with open_queue() as queue:
        assert len(list(folder.glob("damaged-*"))) == 1


async def test_a_database_that_another_program_has_locked_is_said_and_outlived(
    open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_database, "_TIMEOUT_S", 0.01)
    async with open_queue() as queue:
        other = sqlite3.connect(queue.folder / DATABASE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match=r"another program has held the lock of jobs\.sqlite"):
            await queue.submit(asked())
        assert await queue.jobs() == []
        other.execute("ROLLBACK")
        other.close()
        assert (await queue.submit(asked())).state == "queued"


async def test_submissions_wait_for_another_program_that_writes_for_a_moment(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        first = await queue.submit(asked())
        other = sqlite3.connect(queue.folder / DATABASE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE jobs SET priority = 1")
        waiting = asyncio.gather(queue.submit(asked("b")), queue.submit(asked("c")), queue.claim(1))
        # Reading needs no write lock: it is answered while the submissions wait.
        for _ in range(3):
            assert [job.priority for job in await queue.jobs()] == [0]
        assert not waiting.done()
        other.execute("COMMIT")
        second, third, (claimed,) = await waiting
        assert claimed.id == first.id
        assert {job.id for job in await queue.jobs()} == {first.id, second.id, third.id}
        other.execute("BEGIN IMMEDIATE")
        last = asyncio.ensure_future(queue.submit(asked("d")))
        assert len(await queue.jobs()) == 3
        closing = asyncio.ensure_future(queue.close())
        other.execute("ROLLBACK")
        other.close()
        await closing
        assert (await last).state == "queued"


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match="file"):
        JobQueue(tmp_path / "file" / "deployment")


async def test_a_queue_opened_in_another_thread_leaves_its_folder(tmp_path: Path) -> None:
    for _ in range(2):
        queue = await asyncio.to_thread(JobQueue, tmp_path)
        await queue.close()


async def test_a_second_server_is_refused(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        command = [sys.executable, str(Path(victim.__file__)), str(queue.folder)]
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 1
        assert "in use by another server" in second.stderr
        with pytest.raises(UnavailableError, match="in use by another server"):
            open_queue()
        assert (await queue.submit(asked())).state == "queued"
    async with open_queue() as queue:
        assert len(await queue.jobs()) == 1


async def test_a_database_of_a_newer_version_is_left_alone(open_queue: OpenQueue) -> None:
    folder, _ = await with_history(open_queue)
    database = sqlite3.connect(folder / DATABASE)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(UnavailableError, match=f"version 99, this Calotype knows up to {len(MIGRATIONS)}"):
        open_queue()
    assert list(folder.glob("damaged-*")) == []


def test_an_older_database_is_carried_over(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "old.sqlite", isolation_level=None)
    old = "CREATE TABLE colours (name TEXT)"
    assert migrate(connection, [old]) == 0
    connection.execute("INSERT INTO colours VALUES ('red')")
    newer = [old, "ALTER TABLE colours ADD COLUMN hue INTEGER DEFAULT 3; CREATE INDEX i ON colours (hue)"]
    assert migrate(connection, newer) == 1
    assert connection.execute("SELECT * FROM colours").fetchall() == [("red", 3)]
    # One that fails half-way changes nothing.
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [*newer, "DROP TABLE colours; CREATE NONSENSE"])
    connection.close()
    connection = sqlite3.connect(tmp_path / "old.sqlite", isolation_level=None)
    assert connection.execute("SELECT * FROM colours").fetchall() == [("red", 3)]
    assert migrate(connection, newer) == 2
    connection.close()


async def test_a_call_that_fails_disturbs_no_other(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "d.sqlite", isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE seen (name TEXT)")
    database = Database(connection, lambda c: c.execute("SELECT count(*) FROM seen").fetchone()[0])

    def note(name: str) -> Callable[[sqlite3.Connection], str]:
        def work(connection: sqlite3.Connection) -> str:
            connection.execute("INSERT INTO seen VALUES (?)", (name,))
            if name.startswith("bad"):
                raise ValueError(name)
            if name.startswith("wrong"):
                connection.execute("SELECT * FROM nowhere")
            return name

        return work

    names = ["a", "bad", "b", "wrong", "c"]
    outcomes = await asyncio.gather(*(database.call(note(name)) for name in names), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["a", "bad", "b", "no such table: nowhere", "c"]
    seen = await database.call(lambda connection: connection.execute("SELECT name FROM seen").fetchall())
    assert sorted(seen) == [("a",), ("b",), ("c",)]
    assert database.seen == 3
    database.close()


async def test_a_damaged_picture_is_an_error_until_the_same_one_is_made_again(open_queue: OpenQueue) -> None:
    upload = PictureFile(filename="precious.png", subfolder="", type="input")
    async with open_queue() as queue:
        done = await queue.submit(asked())
        other = await queue.submit(asked())
        await queue.claim(2)
        await queue.finish(done.id, [picture("precious")])
        await queue.upload("ann", upload, b"precious")
        (file,) = (queue.folder / "pictures").iterdir()
        file.write_bytes(b"pretzels")
        with pytest.raises(DamagedPictureError, match=f"image 0 of job {done.id}.* is damaged") as refusal:
            await queue.picture(done.id, 0)
        assert str(queue.folder) not in str(refusal.value)
        with pytest.raises(DamagedPictureError, match=r"'precious.png'.* is damaged"):
            await queue.named(upload, "ann")
        await queue.finish(other.id, [picture("precious")])
        assert await queue.picture(done.id, 0) == b"precious"
        file.write_bytes(b"pretzels")
        await queue.upload("ann", upload, b"precious")
        assert await queue.named(upload, "ann") == b"precious"


async def test_a_picture_that_the_disk_does_not_give_is_an_error_that_says_so(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        done = await queue.submit(asked())
        await queue.claim(1)
        await queue.finish(done.id, [picture("precious")])
        (file,) = (queue.folder / "pictures").iterdir()
        file.unlink()
        file.mkdir()
        with pytest.raises(DamagedPictureError, match=r"cannot be read \(Is a directory\)"):
            await queue.picture(done.id, 0)
        file.rmdir()
