"""What is known of jobs, page by page, and how ended ones are forgotten.

Knows nothing of transactions, which are the caller's, nor of the files of forgotten pictures.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from calotype.core.errors import Problem, RequestError
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.rows import as_job, find_row
from calotype.spec.job import FINAL_STATES, Job, JobState

LARGEST_PAGE = 1000


def page(
    connection: sqlite3.Connection,
    *,
    client: str | None,
    state: JobState | None,
    limit: int,
    before: str | None,
) -> list[Job]:
    """Jobs, the newest first; `before` is the last id of the page before."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise RequestError(
            [Problem("limit", f"{limit} is out of range; it must be 1 to {LARGEST_PAGE}", limit)]
        )
    wanted = {"client": client, "state": state, "limit": limit, "before": None}
    if before is not None:
        wanted["before"] = find_row(connection, before, client)["sequence"]
    conditions = [
        condition
        for name, condition in (
            ("client", "client = :client"),
            ("state", "state = :state"),
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


def forget_old(connection: sqlite3.Connection, limits: QueueLimits, now: float) -> list[str]:
    """Remove ended jobs that are too old, and the first to end until the rest fit; answers with files."""
    rows = connection.execute(
        """
        SELECT sequence FROM (
            SELECT sequence, ended_at, sum(size) OVER (ORDER BY end_order DESC) AS with_newer FROM (
                SELECT sequence, ended_at, end_order,
                       (SELECT coalesce(sum(bytes), 0) FROM files WHERE job = sequence) AS size
                FROM jobs WHERE end_order IS NOT NULL
            )
        ) WHERE ended_at < ? OR with_newer > ?
        """,
        (now - limits.max_age_s, limits.max_bytes),
    ).fetchall()
    return _forget(connection, [row["sequence"] for row in rows])


def _forget(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[str]:
    files = []
    for sequence in sequences:
        rows = connection.execute("SELECT sha256 FROM files WHERE job = ?", (sequence,)).fetchall()
        files += [row["sha256"] for row in rows]
        connection.execute("DELETE FROM jobs WHERE sequence = ?", (sequence,))
    return files


def unused(connection: sqlite3.Connection, files: Iterable[str]) -> list[str]:
    """Those of the files that no job has."""
    return [
        sha256
        for sha256 in files
        if connection.execute("SELECT 1 FROM files WHERE sha256 = ? LIMIT 1", (sha256,)).fetchone() is None
    ]
