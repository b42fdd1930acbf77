"""What is known of jobs, page by page, and how ended ones are forgotten.

Knows nothing of transactions, which are the caller's, nor of the files of forgotten pictures.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from calotype.core.errors import Problem, RequestError
from calotype.serve.pagination import parse_cursor
from calotype.serve.queue.fair_share import Entry, choose_removals
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.repository import record_sizes
from calotype.serve.queue.repository.rows import as_job, find_row
from calotype.spec.job import FINAL_STATES, Job, JobKind, JobState

MAX_PAGE = 1000
MAX_FORGOTTEN = 200
"""At once, so that nobody has to wait long behind it."""
FEW_FORGOTTEN = 20
"""Where only what is left says whether it was enough."""


def page(
    connection: sqlite3.Connection,
    *,
    client: str | None,
    state: JobState | None,
    kind: JobKind | None = None,
    limit: int,
    before: str | None,
) -> list[Job]:
    """Jobs, the newest first; `before` is a job's id, or the end of the page before."""
    if not 1 <= limit <= MAX_PAGE:
        raise RequestError([Problem("limit", f"{limit} is out of range; it must be 1 to {MAX_PAGE}", limit)])
    wanted = {"client": client, "state": state, "kind": kind, "limit": limit, "before": None}
    if before is not None:
        said = parse_cursor(before)
        wanted["before"] = find_row(connection, before, client)["sequence"] if said is None else said
    conditions = [
        condition
        for name, condition in (
            ("client", "client = :client"),
            ("state", "state = :state"),
            ("kind", "kind = :kind"),
            ("before", "sequence < :before"),
        )
        if wanted[name] is not None
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(f"SELECT * FROM jobs {where} ORDER BY sequence DESC LIMIT :limit", wanted)  # noqa: S608
    return [as_job(connection, row) for row in rows.fetchall()]


def forget(connection: sqlite3.Connection, job_id: str, client: str | None) -> list[str]:
    """Remove an ended job; answers with the files it had."""
    row = find_row(connection, job_id, client)
    if row["state"] not in FINAL_STATES:
        rule = f"job {job_id} is {row['state']}; only ended jobs can be deleted: cancel it first"
        raise RequestError([Problem("id", rule, job_id)])
    return _forget(connection, [row["sequence"]])


def forget_old(connection: sqlite3.Connection, limits: QueueLimits, now: float) -> list[str] | None:
    """Remove some ended jobs that are too old, or exceed a limit on size; answers with files.

    Where a limit is exceeded, `fair_share` says whose jobs go, and of each client the first to end first.
    None when there is nothing more to remove.
    """
    rows = connection.execute(
        "SELECT sequence FROM jobs WHERE ended_at < ? LIMIT ?", (now - limits.max_age_s, MAX_FORGOTTEN)
    ).fetchall()
    sequences = (
        [row["sequence"] for row in rows]
        or _beyond(connection, limits.max_bytes)
        or _crowding(connection, limits.max_record_bytes)
    )
    return _forget(connection, sequences) if sequences else None


def _beyond(connection: sqlite3.Connection, max_bytes: int) -> list[int]:
    """Ended jobs whose images exceed the limit."""
    rows = connection.execute(
        """
        SELECT client, sum(image_bytes) FROM jobs INDEXED BY jobs_held
        WHERE end_order IS NOT NULL GROUP BY client
        """
    )
    held = {row[0]: row[1] for row in rows}

    def oldest_first(client: str) -> Iterator[Entry]:
        # Jobs without images are many, and left out in the index.
        found = connection.execute(
            """
            SELECT end_order, image_bytes, sequence FROM jobs INDEXED BY jobs_held
            WHERE client = ? AND end_order IS NOT NULL AND image_bytes > 0 ORDER BY end_order
            """,
            (client,),
        )
        return (Entry(*row) for row in found)

    removals = choose_removals(max_bytes, held, oldest_first, MAX_FORGOTTEN)
    return [entry.key for entry in removals]


def _crowding(connection: sqlite3.Connection, max_bytes: int) -> list[int]:
    """The same for the database itself: what clients sent is in it, whether or not images came of it."""
    pages, unused, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    used = (pages - unused) * size
    if used <= max_bytes:
        return []
    held = record_sizes.held(connection)
    # Each client has that part of the database that its rows are of all rows.
    limit = sum(held.values()) * max_bytes // used

    def oldest_first(client: str) -> Iterator[Entry]:
        found = connection.execute(
            """
            SELECT end_order, record_bytes, sequence FROM jobs INDEXED BY jobs_held
            WHERE client = ? AND end_order IS NOT NULL ORDER BY end_order
            """,
            (client,),
        )
        return (Entry(*row) for row in found)

    return [entry.key for entry in choose_removals(limit, held, oldest_first, FEW_FORGOTTEN)]


def _forget(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[str]:
    files = []
    for sequence in sequences:
        rows = connection.execute("SELECT sha256 FROM files WHERE job = ?", (sequence,)).fetchall()
        files += [row["sha256"] for row in rows]
        connection.execute("DELETE FROM jobs WHERE sequence = ?", (sequence,))
    return files


def unused(connection: sqlite3.Connection, files: Iterable[str]) -> list[str]:
    """Those of the files that no job and no client has."""
    used = "SELECT 1 FROM files WHERE sha256 = :file UNION ALL SELECT 1 FROM uploads WHERE sha256 = :file"
    return [
        sha256
        for sha256 in files
        if connection.execute(f"{used} LIMIT 1", {"file": sha256}).fetchone() is None
    ]


def unended(connection: sqlite3.Connection, kind: JobKind, client: str | None) -> int:
    """How many jobs of a kind wait or run."""
    row = connection.execute(
        """
        SELECT count(*) FROM jobs INDEXED BY jobs_unended
        WHERE end_order IS NULL AND kind = :kind AND (:client IS NULL OR client = :client)
        """,
        {"kind": kind, "client": client},
    ).fetchone()
    return int(row[0])
