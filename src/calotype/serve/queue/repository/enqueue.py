"""Inserts jobs into the queue and claims them for workers. The caller owns the transaction.

Clients of one priority take turns. A job's turn is the larger of its client's next turn and the queue's
current turn; the client's next turn then grows by this job's cost. So a client with a thousand queued jobs
delays another client's first job by one of its own, and an idle client accumulates no credit. A job's turn
never changes: claiming, and counting the jobs in front, take one index.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.serve.auth import LOCAL
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.repository import record_sizes, reorder, uploads
from calotype.serve.queue.repository.rows import ALONE_AFTER, as_job, find_row
from calotype.serve.service import QueueFullError
from calotype.spec.job import Job, JobKind, PictureFile


@dataclass(frozen=True)
class NewJob:
    """A checked job to enqueue."""

    client: str
    model: str
    request: Mapping[str, Any]
    model_asked: bool = True
    """Whether the client named the model, or left it to the deployment's default."""
    preset: str | None = None
    priority: int = 0
    deadline_s: float | None = None
    idempotency_key: str | None = None
    cost: int = 1
    """Its amount of work, for the turns between clients."""
    max_queued: int | None = None
    """This client's own limit on queued jobs."""
    kind: JobKind = "pictures"
    id: str | None = None
    """Chosen by the client; a repeated request with the same id is the same job."""
    number: float | None = None
    """Sort key among this client's jobs; its sequence number by default."""
    front: bool = False
    """Puts the job before all others of this client."""
    inputs: Mapping[str, PictureFile] = field(default_factory=dict)
    """Stored files that it uses, by its names for them."""

    @property
    def digest(self) -> str:
        """A hash of what the client requested, independent of the deployment's defaults today."""
        # Without a preset, keep the digest that jobs had before presets existed.
        chosen = [] if self.preset is None else [self.preset]
        model = self.model if self.model_asked else None
        text = json.dumps([model, self.request, *chosen], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class EnqueueResult:
    """An enqueued job."""

    job: Job
    new: bool
    """False if an earlier submission created the job."""


def known(connection: sqlite3.Connection, new: NewJob) -> Job | None:
    """The job of this client with the same idempotency key or id, if any."""
    if new.id is not None:
        return _same_id(connection, new)
    if new.idempotency_key is None:
        return None
    row = connection.execute(
        "SELECT * FROM jobs WHERE client = ? AND idempotency_key = ?", (new.client, new.idempotency_key)
    ).fetchone()
    if row is None:
        return None
    if row["digest"] != new.digest:
        rule = f"{new.idempotency_key!r} belongs to job {row['id']}, which requests something else"
        raise RequestError([Problem("idempotency_key", f"{rule}; use a new key", new.idempotency_key)])
    return as_job(connection, row)


def _same_id(connection: sqlite3.Connection, new: NewJob) -> Job | None:
    row = connection.execute("SELECT * FROM jobs WHERE id = ?", (new.id,)).fetchone()
    if row is None:
        return None
    if (row["client"], row["digest"]) != (new.client, new.digest):
        rule = f"{new.id!r} is the id of another job; choose another, or omit it"
        raise RequestError([Problem("prompt_id", rule, new.id)])
    return as_job(connection, row)


def enqueue(
    connection: sqlite3.Connection,
    new: NewJob,
    given: Mapping[str, int],
    limits: QueueLimits,
    now: float,
    retry_after_s: float,
) -> EnqueueResult:
    """Insert a job, or return the one that has its idempotency key or id.

    `given`: sizes of its input files, by name.
    """
    existing = known(connection, new)
    if existing is not None:
        return EnqueueResult(existing, new=False)
    _check_room(connection, new, limits, retry_after_s)
    job_id = new.id or uuid.uuid4().hex
    attached = uploads.find(connection, new.client, new.inputs, now)
    request = {**new.request, **({"inputs": attached.names} if new.kind == "workflow" else {})}
    cursor = connection.execute(
        """
        INSERT INTO jobs (id, kind, client, model, request, digest, idempotency_key, priority, turn, cost,
                          created_at, deadline_s, steps_total, number, preset)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            job_id,
            new.kind,
            new.client,
            new.model,
            json.dumps(request),
            new.digest,
            new.idempotency_key,
            new.priority,
            _turn(connection, new),
            new.cost,
            now,
            new.deadline_s,
            new.request.get("steps", 0),
            new.number,
            new.preset,
        ),
    )
    connection.execute(
        """
        UPDATE jobs SET place = sequence, number = CASE WHEN :front THEN -sequence ELSE number END
        WHERE sequence = :sequence
        """,
        {"front": new.front, "sequence": cursor.lastrowid},
    )
    connection.executemany(
        "INSERT INTO files (sha256, job, given, bytes) VALUES (?, ?, 1, ?)",
        [(sha256, cursor.lastrowid, size) for sha256, size in {**given, **attached.sizes}.items()],
    )
    assert cursor.lastrowid is not None
    record_sizes.measure(connection, cursor.lastrowid)
    if new.front or new.number is not None:
        reorder.by_number(connection, job_id)
    return EnqueueResult(as_job(connection, find_row(connection, job_id)), new=True)


def _turn(connection: sqlite3.Connection, new: NewJob) -> int:
    place = {"client": new.client, "priority": new.priority}
    current, claimed, waiting = connection.execute(
        """
        SELECT (SELECT turn FROM rounds WHERE priority = :priority),
               (SELECT next_turn FROM shares WHERE client = :client AND priority = :priority),
               (SELECT turn + cost FROM jobs WHERE state = 'queued' AND client = :client
                AND priority = :priority ORDER BY turn DESC LIMIT 1)
        """,
        place,
    ).fetchone()
    return max(current or 0, claimed or 0, waiting or 0)


def _check_room(
    connection: sqlite3.Connection, new: NewJob, limits: QueueLimits, retry_after_s: float
) -> None:
    queued = connection.execute("SELECT count(*) FROM jobs WHERE state = 'queued'").fetchone()[0]
    if queued >= limits.max_queued:
        raise QueueFullError(
            f"{queued} jobs are waiting, the limit is {limits.max_queued}; try again later", retry_after_s
        )
    own_limit = min(limits.max_queued_per_client, new.max_queued or limits.max_queued_per_client)
    own = connection.execute(
        "SELECT count(*) FROM jobs WHERE state = 'queued' AND client = ?", (new.client,)
    ).fetchone()[0]
    if own >= own_limit:
        rule = f"{own} jobs of {new.client!r} are waiting, the limit for one client is {own_limit}"
        raise QueueFullError(f"{rule}; try again when one has started", retry_after_s)
    free = limits.max_queued - queued
    # One client takes at most half of the queue, and freed space goes to clients with fewer jobs first.
    # Without keys there is one client, which may use all of it.
    if own >= free and new.client != LOCAL:
        rule = f"{own} jobs of {new.client!r} are waiting and {free} of {limits.max_queued} places are free"
        policy = "a client may have no more waiting jobs than places are free, so that others find room"
        raise QueueFullError(f"{rule}: {policy}; try again when one has started", retry_after_s)


def claim(
    connection: sqlite3.Connection, most: Mapping[JobKind, int], now: float, *, alone: bool = False
) -> list[Job]:
    """Claim the next jobs, up to a number of each kind; with `alone`, those that must run alone."""
    rows = [row for kind, number in most.items() for row in _next(connection, kind, number, alone)]
    for row in rows:
        connection.execute(
            "UPDATE jobs SET state = 'running', started_at = ?, attempts = attempts + 1 WHERE sequence = ?",
            (now, row["sequence"]),
        )
        _count_turn(connection, row)
    return [as_job(connection, find_row(connection, row["id"])) for row in rows]


def _next(connection: sqlite3.Connection, kind: JobKind, most: int, alone: bool) -> list[sqlite3.Row]:
    return connection.execute(
        f"""
        SELECT * FROM jobs INDEXED BY jobs_waiting
        WHERE state = 'queued' AND losses {">=" if alone else "<"} ? AND kind = ?
        ORDER BY priority DESC, turn, place LIMIT ?
        """,  # noqa: S608
        (ALONE_AFTER, kind, most),
    ).fetchall()


def _count_turn(connection: sqlite3.Connection, row: sqlite3.Row) -> None:
    # A requeued job has an old turn, and the queue's turn never goes back.
    connection.execute(
        "INSERT INTO rounds VALUES (?, ?) ON CONFLICT DO UPDATE SET turn = max(turn, excluded.turn)",
        (row["priority"], row["turn"]),
    )
    connection.execute(
        """
        INSERT INTO shares VALUES (?, ?, ?)
        ON CONFLICT DO UPDATE SET next_turn = max(next_turn, excluded.next_turn)
        """,
        (row["client"], row["priority"], row["turn"] + row["cost"]),
    )
