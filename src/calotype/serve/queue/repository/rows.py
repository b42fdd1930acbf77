"""Converts rows of the jobs table to Jobs."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from calotype.core.errors import NotFoundError
from calotype.spec.job import Job, JobFailure, JobPicture, WorkflowReport

ALONE_AFTER = 2
"""A job that was lost this often runs alone, so that the next death is attributed to it."""


@dataclass(frozen=True)
class Counts:
    """Numbers of jobs that have not ended."""

    queued: int
    running: int
    alone: int
    """Those of the queued jobs that must run alone."""


def counted(connection: sqlite3.Connection) -> Counts:
    queued, alone = connection.execute(
        """
        SELECT count(*), count(CASE WHEN losses >= ? THEN 1 END)
        FROM jobs INDEXED BY jobs_waiting WHERE state = 'queued'
        """,
        (ALONE_AFTER,),
    ).fetchone()
    (running,) = connection.execute("SELECT count(*) FROM jobs WHERE state = 'running'").fetchone()
    return Counts(queued=queued, running=running, alone=alone)


_POSITION = """
    SELECT count(*) FROM jobs INDEXED BY jobs_waiting WHERE state = 'queued'
    AND (priority > :priority OR (priority = :priority AND (turn, place) < (:turn, :place)))
"""


def as_job(connection: sqlite3.Connection, row: sqlite3.Row) -> Job:
    """The job of a complete row, with its queue position."""
    return Job(
        id=row["id"],
        kind=row["kind"],
        sequence=row["sequence"],
        client=row["client"],
        state=row["state"],
        model=row["model"],
        request=json.loads(row["request"]),
        priority=row["priority"],
        position=_position(connection, row) if row["state"] == "queued" else None,
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        deadline_at=None if row["deadline_s"] is None else row["created_at"] + row["deadline_s"],
        steps_done=row["steps_done"],
        steps_total=row["steps_total"],
        attempts=row["attempts"],
        pictures=tuple(JobPicture.model_validate(picture) for picture in json.loads(row["pictures"])),
        failure=None if row["failure"] is None else JobFailure.model_validate_json(row["failure"]),
        idempotency_key=row["idempotency_key"],
        report=None if row["report"] is None else WorkflowReport.model_validate_json(row["report"]),
        preset=row["preset"],
    )


def find_row(connection: sqlite3.Connection, job_id: str, client: str | None = None) -> sqlite3.Row:
    """The row of a job; another client's job counts as missing."""
    row: sqlite3.Row | None = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None or client not in (None, row["client"]):
        raise NotFoundError(
            f"no job {job_id[:80]!r}; it may have been deleted, or removed after its retention time"
        )
    return row


def find_job(connection: sqlite3.Connection, job_id: str, client: str | None = None) -> Job:
    """A job; with `client`, only if it is that client's."""
    return as_job(connection, find_row(connection, job_id, client))


def _position(connection: sqlite3.Connection, row: sqlite3.Row) -> int:
    place: dict[str, Any] = {name: row[name] for name in ("priority", "turn", "place")}
    return int(connection.execute(_POSITION, place).fetchone()[0])
