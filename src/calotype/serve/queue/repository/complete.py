"""Ends jobs, once each, and requeues running ones. The caller owns the transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.repository import record_sizes
from calotype.serve.queue.repository.rows import find_job, find_row
from calotype.spec.job import Job, JobFailure, JobPicture, WorkflowReport


@dataclass(frozen=True)
class Completion:
    """The result of a job."""

    state: Literal["done", "failed", "cancelled"]
    pictures: tuple[JobPicture, ...] = ()
    failure: JobFailure | None = None
    request: Mapping[str, Any] | None = None
    """The request with the model's defaults; as it was accepted if None."""
    steps: tuple[int, int] | None = None
    """Steps done and total steps."""
    report: WorkflowReport | None = None
    """The report of a workflow."""


GIVEN = ("image", "mask")
"""Fields of a request that name its input images."""
CANCELLED = Completion("cancelled")
OVERDUE = Completion(
    "failed", failure=JobFailure(kind="deadline", message="its deadline passed before it ended")
)


def end(connection: sqlite3.Connection, job_id: str, ending: Completion, now: float) -> Job | None:
    """Set a job's final state; None if it has one already or was deleted."""
    row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        return None
    steps = ending.steps or (None, None)
    cursor = connection.execute(
        """
        UPDATE jobs SET state = :state, ended_at = :now, failure = :failure, pictures = :pictures,
            request = :request, report = :report,
            steps_done = coalesce(:steps_done, steps_done),
            steps_total = coalesce(:steps_total, steps_total),
            end_order = (SELECT coalesce(max(end_order), 0) + 1 FROM jobs)
        WHERE id = :id AND state IN ('queued', 'running')
        """,
        {
            "id": job_id,
            "now": now,
            "state": ending.state,
            "failure": None if ending.failure is None else ending.failure.model_dump_json(),
            "pictures": json.dumps([picture.model_dump() for picture in ending.pictures]),
            "report": None if ending.report is None else ending.report.model_dump_json(),
            "request": row["request"] if ending.request is None else _final_request(row, ending.request),
            "steps_done": steps[0],
            "steps_total": steps[1],
        },
    )
    if cursor.rowcount == 0:
        return None
    connection.execute("DELETE FROM files WHERE job = ? AND given = 1", (row["sequence"],))
    connection.executemany(
        "INSERT OR IGNORE INTO files (sha256, job, given, bytes) VALUES (?, ?, 0, ?)",
        [(picture.sha256, row["sequence"], picture.bytes) for picture in ending.pictures],
    )
    record_sizes.measure(connection, row["sequence"])
    return find_job(connection, job_id)


def _final_request(row: sqlite3.Row, request: Mapping[str, Any]) -> str:
    """The request with the model's defaults, and the input images that were accepted."""
    accepted = json.loads(row["request"])
    given = {name: accepted[name] for name in GIVEN if name in accepted}
    return json.dumps({**request, **given})


def ask_to_stop(
    connection: sqlite3.Connection, job_id: str, client: str | None, now: float
) -> tuple[Job, bool]:
    """End a queued job at once; mark a running one, so that it ends even if its worker dies first.

    Returns the job, and whether it has ended by this.
    """
    row = find_row(connection, job_id, client)
    if row["state"] == "queued":
        end(connection, job_id, CANCELLED, now)
    elif row["state"] == "running":
        connection.execute("UPDATE jobs SET stop_wanted = 1 WHERE id = ?", (job_id,))
    return find_job(connection, job_id), row["state"] == "queued"


def put_back(
    connection: sqlite3.Connection, job_ids: Iterable[str], limits: QueueLimits, now: float, *, lost: bool
) -> list[Job]:
    """Requeue jobs that no longer run, or end those that were canceled or lost too often.

    `lost` says that their worker or server died, which a job survives `limits.max_losses` - 1 times.
    """
    changed = []
    for job_id in job_ids:
        cursor = connection.execute(
            "UPDATE jobs SET losses = losses + ? WHERE id = ? AND state = 'running'", (int(lost), job_id)
        )
        if cursor.rowcount:
            _put_back(connection, find_row(connection, job_id), limits, now)
            changed.append(find_job(connection, job_id))
    return changed


def _put_back(connection: sqlite3.Connection, row: sqlite3.Row, limits: QueueLimits, now: float) -> None:
    if row["stop_wanted"]:
        end(connection, row["id"], CANCELLED, now)
    elif row["losses"] >= limits.max_losses:
        message = f"its worker died {row['losses']} times while running it, the limit is {limits.max_losses}"
        failure = JobFailure(kind="worker_lost", message=message)
        end(connection, row["id"], Completion("failed", failure=failure), now)
    else:
        connection.execute("UPDATE jobs SET state = 'queued', started_at = NULL WHERE id = ?", (row["id"],))


def put_all_back(connection: sqlite3.Connection, limits: QueueLimits, now: float, *, lost: bool) -> list[Job]:
    """Requeue all running jobs, after a crash or before a stop."""
    rows = connection.execute("SELECT id FROM jobs WHERE state = 'running'").fetchall()
    return put_back(connection, [row["id"] for row in rows], limits, now, lost=lost)
