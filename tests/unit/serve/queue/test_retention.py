"""What is forgotten where a limit is exceeded: each client has a fair share of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.migrations import MIGRATIONS, migrate
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository import complete, enqueue, history, uploads
from calotype.serve.queue.repository.complete import CANCELLED, Completion
from calotype.spec.job import JobPicture
from tests.unit.serve.queue.conftest import Hands, OpenQueue, asked, picture
from tests.unit.serve.queue.test_workflows import file, made, workflow

ONCE = settings(max_examples=60, deadline=None, derandomize=True, database=None)
CLIENTS = ("ann", "bob", "cid", "dee")
NEVER = 1e12


async def finished(queue: JobQueue, client: str, text: str) -> str:
    """A job of a client that has made one image."""
    job = await queue.submit(asked(text, client))
    await queue.claim(1)
    await queue.finish(job.id, [picture(text)])
    return job.id


async def kept(queue: JobQueue, client: str | None = None) -> list[str]:
    """Prompts of jobs that are remembered, oldest first; without a client, as an admin sees them."""
    return [job.request["prompt"] for job in reversed(await queue.jobs(client=client, limit=1000))]


async def given_names(queue: JobQueue, client: str) -> list[str]:
    return [upload.file.filename for upload in await queue.uploads(client)]


# A flood of one client


@pytest.mark.anyio
async def test_a_flood_of_one_client_takes_images_of_no_other(open_queue: OpenQueue) -> None:
    async with open_queue(max_bytes=100) as queue:
        first = await finished(queue, "bob", "bob's first")
        for number in range(30):
            await finished(queue, "ann", f"ann's {number:04}")
        await finished(queue, "bob", "bob's other")
        await queue.delete_expired()
        assert await kept(queue, "bob") == ["bob's first", "bob's other"]
        assert await queue.picture(first, 0) == b"bob's first"
        # The rest of the limit is ann's, whose oldest jobs have gone: 11 + 11 + 7 * 10.
        assert await kept(queue, "ann") == [f"ann's {number:04}" for number in range(23, 30)]
        # An admin sees what all clients see together.
        assert sorted(await kept(queue)) == sorted(await kept(queue, "ann") + await kept(queue, "bob"))
    # A restart changes nothing.
    async with open_queue(max_bytes=100) as queue:
        await queue.delete_expired()
        assert len(await kept(queue)) == 9


@pytest.mark.anyio
async def test_what_others_leave_free_may_be_used(open_queue: OpenQueue) -> None:
    async with open_queue(max_bytes=100) as queue:
        await finished(queue, "bob", "b" * 10)
        for number in range(9):
            await finished(queue, "ann", str(number) * 10)
        await queue.delete_expired()
        assert len(await kept(queue)) == 10


@pytest.mark.anyio
async def test_large_records_of_one_client_take_no_job_of_another(open_queue: OpenQueue) -> None:
    async with open_queue(max_record_bytes=2**20) as queue:
        mine = [await finished(queue, "bob", f"bob's {number}") for number in range(3)]
        for number in range(100):
            job = await queue.submit(asked(f"{number} {'x' * 20_000}", "ann"))
            await queue.request_cancel(job.id)
        await queue.delete_expired()
        assert await kept(queue, "bob") == ["bob's 0", "bob's 1", "bob's 2"]
        left = [int(prompt.split()[0]) for prompt in await kept(queue, "ann")]
        assert left == list(range(100 - len(left), 100))
        assert 20 <= len(left) < 100
        assert await queue.picture(mine[0], 0) == b"bob's 0"


@pytest.mark.anyio
async def test_records_that_cannot_go_yet_take_no_job_of_another(open_queue: OpenQueue) -> None:
    async with open_queue(max_record_bytes=2**20) as queue:
        await finished(queue, "bob", "bob's")
        for number in range(100):
            await queue.submit(asked(f"{number} {'x' * 20_000}", "ann"))
        await queue.delete_expired()
        assert await kept(queue, "bob") == ["bob's"]
        assert queue.counts.queued == 100
        # They go as soon as they can.
        for job in await queue.jobs(limit=1000, state="queued"):
            await queue.request_cancel(job.id)
        await queue.delete_expired()
        assert await kept(queue, "bob") == ["bob's"]
        assert 20 <= len(await kept(queue, "ann")) < 100


@pytest.mark.anyio
async def test_images_of_a_workflow_that_runs_take_no_job_of_another(open_queue: OpenQueue) -> None:
    async with open_queue(max_bytes=100) as queue:
        await finished(queue, "bob", "b" * 40)
        flow = await queue.submit(workflow("ann"))
        await queue.claim(0, workflows=1)
        saved = await queue.keep(flow.id, [made("x" * 90, "x.png")])
        assert saved is not None
        await queue.delete_expired()
        assert await kept(queue, "bob") == ["b" * 40]
        await queue.end(flow.id, Completion("done", saved))
        await queue.delete_expired()
        assert [job.client for job in await queue.jobs()] == ["bob"]


@pytest.mark.anyio
@pytest.mark.parametrize("limit", ["max_upload_bytes", "max_uploads"])
async def test_a_flood_of_uploads_takes_no_upload_of_another(
    open_queue: OpenQueue, hands: Hands, limit: str
) -> None:
    most = {"max_upload_bytes": 40, "max_uploads": 10}[limit]
    async with open_queue(**{limit: most}) as queue:
        for name in ("old.png", "face.png"):
            await queue.upload("bob", file(name, "input"), name.encode()[:4])
            hands.pass_(1)
        for number in range(40):
            await queue.upload("ann", file(f"{number:02}.png", "input"), f"{number:04}".encode())
            hands.pass_(1)
        # Used again, so no longer the oldest.
        job = await queue.submit(workflow("ann", inputs={"a": file("05.png", "input")}))
        await queue.request_cancel(job.id)
        await queue.delete_expired()
        assert await given_names(queue, "bob") == ["face.png", "old.png"]
        assert await given_names(queue, "ann") == ["05.png", *(f"{number}.png" for number in range(33, 40))]
        assert len(list((queue.folder / "pictures").iterdir())) == 10


@pytest.mark.anyio
async def test_jobs_without_images_make_no_room_for_images(open_queue: OpenQueue) -> None:
    async with open_queue(max_bytes=10) as queue:
        cancelled = await queue.submit(asked("cancelled"))
        await queue.request_cancel(cancelled.id)
        await finished(queue, "ann", "1" * 8)
        await finished(queue, "ann", "2" * 8)
        await queue.delete_expired()
        assert await kept(queue) == ["cancelled", "2" * 8]


@pytest.mark.anyio
async def test_jobs_of_an_older_database_are_measured(tmp_path: Path, open_queue: OpenQueue) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "jobs.sqlite", isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS[:3])
        for number, client in enumerate(["bob", *["ann"] * 20], start=1):
            connection.execute(
                """
                INSERT INTO jobs (sequence, id, client, state, model, request, digest, priority, turn, cost,
                                  created_at, ended_at, steps_total, end_order)
                VALUES (?, ?, ?, 'done', 'emoji', '{"prompt": "p"}', 'd', 0, 1, 1, 1000000, 1000000, 4, ?)
                """,
                (number, f"{client}-{number}", client, number),
            )
            connection.execute("INSERT INTO files VALUES (?, ?, 0, 10)", (f"{number:064}", number))
    async with open_queue(max_bytes=50) as queue:
        await queue.delete_expired()
        assert [job.id for job in await queue.jobs()] == ["ann-21", "ann-20", "ann-19", "ann-18", "bob-1"]


# Against a plain reference


Held = list[tuple[str, int]]
"""Clients and sizes, the oldest first."""


def reference(entries: Held, limit: int) -> list[int]:
    """Which entries stay, by their numbers."""
    left = dict(enumerate(entries))
    while sum(size for _, size in left.values()) > limit:

        def holding(client: str) -> tuple[int, int]:
            own = [(number, size) for number, (owner, size) in left.items() if owner == client and size]
            return sum(size for _, size in own), -min(number for number, _ in own)

        largest = max({client for client, size in left.values() if size}, key=holding)
        del left[next(n for n, (client, size) in left.items() if client == largest and size)]
    return list(left)


def check_fair(entries: Held, stay: list[int], limit: int) -> None:
    """What holds whatever the reference says."""
    assert sum(entries[number][1] for number in stay) <= limit
    holders = {client for client, size in entries if size}
    for client in holders:
        own = [number for number, (owner, size) in enumerate(entries) if owner == client and size]
        left = [number for number in own if number in stay]
        assert left == own[len(own) - len(left) :], "the oldest of a client go first"
        if sum(entries[number][1] for number in own) * len(holders) <= limit:
            assert left == own, "a client within its share loses nothing"


HELD = st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(0, 40)), max_size=30)


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection)
        yield connection


def image(number: int, size: int) -> JobPicture:
    return JobPicture(sha256=f"{number:064}", bytes=size, width=1, height=1)


def add_job(connection: sqlite3.Connection, number: int, client: str, size: int, text: str = "p") -> None:
    entered = enqueue.enqueue(connection, asked(text, client), {}, QueueLimits(), NEVER, 1.0)
    how = Completion("done", (image(number, size),)) if size else CANCELLED
    assert complete.end(connection, entered.job.id, how, NEVER) is not None


@ONCE
@given(entries=HELD, limit=st.integers(0, 300), at_once=st.integers(1, 5))
def test_images_go_as_the_reference_says(entries: Held, limit: int, at_once: int) -> None:
    with database() as connection, patch.object(history, "MAX_DELETED", at_once):
        for number, (client, size) in enumerate(entries):
            add_job(connection, number, client, size)
        removed: list[str] = []
        while (files := history.forget_old(connection, QueueLimits(max_bytes=limit), NEVER)) is not None:
            assert len(files) <= at_once
            removed += files
        stay = [row["sequence"] - 1 for row in connection.execute("SELECT sequence FROM jobs ORDER BY 1")]
        left = {row["sha256"] for row in connection.execute("SELECT sha256 FROM files")}
    assert stay == reference(entries, limit)
    assert left == {f"{number:064}" for number in stay if entries[number][1]}
    assert not left & set(removed)
    check_fair(entries, stay, limit)


@ONCE
@given(
    entries=HELD,
    limit=st.integers(0, 300),
    at_once=st.integers(1, 5),
    by_number=st.booleans(),
    data=st.data(),
)
def test_uploads_go_as_the_reference_says(
    entries: Held, limit: int, at_once: int, by_number: bool, data: st.DataObject
) -> None:
    if by_number:
        entries, limit = [(client, 1) for client, _ in entries], limit // 10
    # Entered in any order: what counts is when an upload was used last.
    order = data.draw(st.permutations(range(len(entries))))
    limits = QueueLimits(**{"max_uploads" if by_number else "max_upload_bytes": limit})
    with database() as connection, patch.object(uploads, "MAX_DELETED", at_once):
        for number in order:
            client, size = entries[number]
            name = file(f"{number}.png", "input")
            uploads.enter(connection, client, name, (f"{number:064}", size), float(number), overwrite=False)
        while (files := uploads.forget_old(connection, limits, 0.0)) is not None:
            assert len(files) <= at_once
        rows = connection.execute("SELECT used_at FROM uploads ORDER BY used_at")
        stay = [int(row["used_at"]) for row in rows]
    assert stay == reference(entries, limit)
    check_fair(entries, stay, limit)


@ONCE
@given(
    entries=st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(1, 60_000)), max_size=60),
    waiting=st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(1, 60_000)), max_size=10),
)
def test_no_client_within_its_share_loses_a_record(entries: Held, waiting: Held) -> None:
    limit = 2**20
    with database() as connection:
        for number, (client, size) in enumerate(entries):
            add_job(connection, number, client, 0, "x" * size)
        for client, size in waiting:
            enqueue.enqueue(connection, asked("x" * size, client), {}, QueueLimits(), NEVER, 1.0)
        used = connection.execute("PRAGMA page_count").fetchone()[0] * 4096
        while history.forget_old(connection, QueueLimits(max_record_bytes=limit), NEVER) is not None:
            pass
        rows = connection.execute("SELECT sequence FROM jobs WHERE end_order IS NOT NULL ORDER BY 1")
        stay = [row["sequence"] - 1 for row in rows]
        pages, free = (connection.execute(f"PRAGMA {n}_count").fetchone()[0] for n in ("page", "freelist"))
    held = {client: 0 for client, _ in entries + waiting}
    for client, size in entries + waiting:
        held[client] += size
    for client, size in held.items():
        own = [number for number, (owner, _) in enumerate(entries) if owner == client]
        left = [number for number in own if number in stay]
        assert left == own[len(own) - len(left) :], "the oldest of a client go first"
        # Pages and short columns are no exact part of anyone: a tenth of a share is left for them.
        if used <= limit or size * len(held) <= 0.9 * limit - len(entries + waiting) * 2048:
            assert left == own, "a client within its share loses nothing"
    if not waiting:
        assert (pages - free) * 4096 <= limit


# How much is read for it


@contextmanager
def plans(connection: sqlite3.Connection) -> Iterator[dict[str, list[str]]]:
    """How SQLite does each statement that runs meanwhile, by its text."""
    ran: list[str] = []
    found: dict[str, list[str]] = {}
    connection.set_trace_callback(ran.append)
    try:
        yield found
    finally:
        connection.set_trace_callback(None)
    for statement in ran:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT"):
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            found[statement] = [row["detail"] for row in rows]


def filled(connection: sqlite3.Connection) -> None:
    for number in range(12):
        client = CLIENTS[number % 2]
        add_job(connection, number, client, 10)
        name = file(f"{number}.png", "input")
        uploads.enter(connection, client, name, (f"{number:064}", 10), 1.0, overwrite=False)


def whole_tables(found: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Statements that read all rows of a table that grows, and the step in which they do."""
    grows = ("jobs", "files", "uploads", "named", "shares")
    return [
        (statement, step)
        for statement, steps in found.items()
        for step in steps
        if step.startswith("SCAN") and step.split()[1] in grows
    ]


def test_handing_in_and_ending_read_no_whole_table() -> None:
    with database() as connection:
        filled(connection)
        with plans(connection) as found:
            inputs = {"a": file("0.png", "input")}
            new = workflow("ann", inputs=inputs)
            assert uploads.missing(connection, "ann", inputs) == []
            entered = enqueue.enqueue(connection, new, {}, QueueLimits(), NEVER, 1.0)
            complete.end(connection, entered.job.id, Completion("done", (image(99, 5),)), NEVER)
            uploads.enter(connection, "ann", file("0.png", "input"), ("9" * 64, 3), 2.0, overwrite=False)
            uploads.sha256_of(connection, "cid", file("1.png", "input"), others=True)
            uploads.listed(connection, "ann")
        assert len(found) > 15
        # How many jobs wait is read from an index that holds these alone.
        allowed = "INDEX jobs_waiting"
        assert [each for each in whole_tables(found) if allowed not in each[1]] == []


def test_many_uploads_of_one_name_are_numbered_in_few_steps() -> None:
    name = file("a.png", "input")
    with database() as connection:

        def give(number: int) -> str:
            contents = f"{number:064}", 1
            return uploads.enter(connection, "ann", name, contents, 1.0, overwrite=False)[0].filename

        assert [give(number) for number in range(500)] == ["a.png", *(f"a ({n}).png" for n in range(1, 500))]
        with plans(connection) as found:
            assert give(500) == "a (500).png"
        assert len(found) < 30
        assert whole_tables(found) == []
        # The same file again is the same, also under its number.
        assert [give(number) for number in (0, 3, 500)] == ["a.png", "a (3).png", "a (500).png"]
        # A number that has become free may be used again, and never one that is taken.
        uploads.remove(connection, "ann", file("a (250).png", "input"))
        names = {give(number) for number in range(600, 610)}
        taken = {row["filename"] for row in connection.execute("SELECT filename FROM uploads")}
        assert len(names) == 10
        assert len(taken) == 510


def test_retention_reads_indexes_and_only_the_rows_that_go() -> None:
    limits = QueueLimits(max_bytes=30, max_upload_bytes=30, max_uploads=2, max_record_bytes=2**20)
    with database() as connection:
        filled(connection)
        with plans(connection) as found:
            for forget in (history.forget_old, uploads.forget_old):
                while forget(connection, limits, 0.0) is not None:
                    pass
            assert history._over_record_limit(connection, 0)
        read = [step for _, step in whole_tables(found)]
        assert read
        covering = ("COVERING INDEX jobs_held", "COVERING INDEX uploads_of_client")
        assert [step for step in read if not any(each in step for each in covering)] == []
        sorted_ = [step for steps in found.values() for step in steps if "ORDER BY" in step]
        assert sorted_ == [], "entries come in their order from an index"
