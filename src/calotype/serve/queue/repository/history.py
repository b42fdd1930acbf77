"""Lists jobs page by page and deletes ended ones. The caller owns the transaction and removes the files."""

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
MAX_DELETED = 200
"""In one transaction, so that other calls do not wait long."""
FEW_DELETED = 20
"""The same where only the remaining size shows whether it was enough."""


def page(
    connection: sqlite3.Connection,
    *,
    client: str | None,
    state: JobState | None,
    kind: JobKind | None = None,
    limit: int,
    before: str | None,
) -> list[Job]:
    """Jobs, newest first; `before` is a job's id, or the cursor of the previous page."""
    if not 1 <= limit <= MAX_PAGE:
        raise RequestError([Problem("limit", f"{limit} is out of range; it must be 1 to {MAX_PAGE}", limit)])
    filters = {"client": client, "state": state, "kind": kind, "limit": limit, "before": None}
    if before is not None:
        cursor = parse_cursor(before)
        filters["before"] = find_row(connection, before, client)["sequence"] if cursor is None else cursor
    conditions = [
        condition
        for name, condition in (
            ("client", "client = :client"),
            ("state", "state = :state"),
            ("kind", "kind = :kind"),
            ("before", "sequence < :before"),
        )
        if filters[name] is not None
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(f"SELECT * FROM jobs {where} ORDER BY sequence DESC LIMIT :limit", filters)  # noqa: S608
    return [as_job(connection, row) for row in rows.fetchall()]


def forget(connection: sqlite3.Connection, job_id: str, client: str | None) -> list[str]:
    """Delete an ended job; returns the files it had."""
    row = find_row(connection, job_id, client)
    if row["state"] not in FINAL_STATES:
        rule = f"job {job_id} is {row['state']}; only ended jobs can be deleted: cancel it first"
        raise RequestError([Problem("id", rule, job_id)])
    return _delete(connection, [row["sequence"]])


def forget_old(connection: sqlite3.Connection, limits: QueueLimits, now: float) -> list[str] | None:
    """Delete some ended jobs that are too old or exceed a limit on size; returns their files.

    Where a limit is exceeded, `fair_share` chooses the clients; a client's jobs that ended first go first.
    Returns None when nothing is left to delete.
    """
    rows = connection.execute(
        "SELECT sequence FROM jobs WHERE ended_at < ? LIMIT ?", (now - limits.max_age_s, MAX_DELETED)
    ).fetchall()
    sequences = (
        [row["sequence"] for row in rows]
        or _over_image_limit(connection, limits.max_bytes)
        or _over_record_limit(connection, limits.max_record_bytes)
    )
    return _delete(connection, sequences) if sequences else None


def _over_image_limit(connection: sqlite3.Connection, max_bytes: int) -> list[int]:
    """Ended jobs to delete so that images stay within the limit."""
    rows = connection.execute(
        """
        SELECT client, sum(image_bytes) FROM jobs INDEXED BY jobs_held
        WHERE end_order IS NOT NULL GROUP BY client
        """
    )
    held = {row[0]: row[1] for row in rows}

    def oldest_first(client: str) -> Iterator[Entry]:
        # Skip the many jobs without images within the index.
        rows = connection.execute(
            """
            SELECT end_order, image_bytes, sequence FROM jobs INDEXED BY jobs_held
            WHERE client = ? AND end_order IS NOT NULL AND image_bytes > 0 ORDER BY end_order
            """,
            (client,),
        )
        return (Entry(*row) for row in rows)

    removals = choose_removals(max_bytes, held, oldest_first, MAX_DELETED)
    return [entry.key for entry in removals]


def _over_record_limit(connection: sqlite3.Connection, max_bytes: int) -> list[int]:
    """The same for the database itself, which holds the records of jobs with and without images."""
    pages, unused, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    used = (pages - unused) * size
    if used <= max_bytes:
        return []
    held = record_sizes.held(connection)
    # Scale the limit from the size of the database to the size of all rows.
    limit = sum(held.values()) * max_bytes // used

    def oldest_first(client: str) -> Iterator[Entry]:
        rows = connection.execute(
            """
            SELECT end_order, record_bytes, sequence FROM jobs INDEXED BY jobs_held
            WHERE client = ? AND end_order IS NOT NULL ORDER BY end_order
            """,
            (client,),
        )
        return (Entry(*row) for row in rows)

    return [entry.key for entry in choose_removals(limit, held, oldest_first, FEW_DELETED)]


def _delete(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[str]:
    files = []
    for sequence in sequences:
        rows = connection.execute("SELECT sha256 FROM files WHERE job = ?", (sequence,)).fetchall()
        files += [row["sha256"] for row in rows]
        connection.execute("DELETE FROM jobs WHERE sequence = ?", (sequence,))
    return files


def unused(connection: sqlite3.Connection, files: Iterable[str]) -> list[str]:
    """Those of the files that no job and no upload references."""
    used = "SELECT 1 FROM files WHERE sha256 = :file UNION ALL SELECT 1 FROM uploads WHERE sha256 = :file"
    return [
        sha256
        for sha256 in files
        if connection.execute(f"{used} LIMIT 1", {"file": sha256}).fetchone() is None
    ]


def unended(connection: sqlite3.Connection, kind: JobKind, client: str | None) -> int:
    """Number of queued and running jobs of a kind."""
    row = connection.execute(
        """
        SELECT count(*) FROM jobs INDEXED BY jobs_unended
        WHERE end_order IS NULL AND kind = :kind AND (:client IS NULL OR client = :client)
        """,
        {"kind": kind, "client": client},
    ).fetchone()
    return int(row[0])
