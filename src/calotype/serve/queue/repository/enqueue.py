"""How jobs enter the queue and leave it for a worker. Knows nothing of transactions, which are the caller's.

Between clients of one priority turns are taken. A job's turn is where its client's turns have come, or where
the queue has come if that is further, and the next job of that client comes as much later as this one costs.
So a client with a thousand waiting jobs delays another's first job by one of its own, and one who was away
has saved nothing up. A job's turn never changes: claiming, and counting who is in front, take one index.
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
    """What is to be accepted, checked by whoever made it."""

    client: str
    model: str
    request: Mapping[str, Any]
    model_asked: bool = True
    """Whether the client named the model, or took whichever the deployment serves first."""
    preset: str | None = None
    priority: int = 0
    deadline_s: float | None = None
    idempotency_key: str | None = None
    cost: int = 1
    """How much work it is beside others, for the turns between clients."""
    max_queued: int | None = None
    """A bound of this client's own."""
    kind: JobKind = "pictures"
    id: str | None = None
    """Chosen by the client; the same again, asking for the same, is the same job."""
    number: float | None = None
    """Goes before those jobs of this client that have a larger one; its place in the row if not said."""
    front: bool = False
    """Goes before all of this client's."""
    inputs: Mapping[str, PictureFile] = field(default_factory=dict)
    """Files that are here already and belong to it, by what it calls them."""

    @property
    def digest(self) -> str:
        """The same for what asks for the same, whatever the deployment would make of it today."""
        # Where none is chosen it is what it was before there were any to choose.
        chosen = [] if self.preset is None else [self.preset]
        model = self.model if self.model_asked else None
        text = json.dumps([model, self.request, *chosen], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class EnqueueResult:
    """The job that was asked for."""

    job: Job
    new: bool
    """False where an earlier submission had asked for it."""


def known(connection: sqlite3.Connection, new: NewJob) -> Job | None:
    """The job that this client's idempotency key, or id, already stands for."""
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
        rule = f"{new.idempotency_key!r} stands for job {row['id']}, which asks for something else"
        raise RequestError([Problem("idempotency_key", f"{rule}; use a new key", new.idempotency_key)])
    return as_job(connection, row)


def _same_id(connection: sqlite3.Connection, new: NewJob) -> Job | None:
    row = connection.execute("SELECT * FROM jobs WHERE id = ?", (new.id,)).fetchone()
    if row is None:
        return None
    if (row["client"], row["digest"]) != (new.client, new.digest):
        rule = f"{new.id!r} is another job's; choose another, or leave it out"
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
    """Put a job into the queue, or answer with the one its idempotency key stands for.

    `given`: bytes of the files that came with it, by name.
    """
    found = known(connection, new)
    if found is not None:
        return EnqueueResult(found, new=False)
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
    came_to, claimed, waiting = connection.execute(
        """
        SELECT (SELECT turn FROM rounds WHERE priority = :priority),
               (SELECT next_turn FROM shares WHERE client = :client AND priority = :priority),
               (SELECT turn + cost FROM jobs WHERE state = 'queued' AND client = :client
                AND priority = :priority ORDER BY turn DESC LIMIT 1)
        """,
        place,
    ).fetchone()
    return max(came_to or 0, claimed or 0, waiting or 0)


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
        raise QueueFullError(f"{rule}; try again when one has begun", retry_after_s)
    free = limits.max_queued - queued
    # One client takes at most half of the queue, and what becomes free goes to those with fewer jobs first.
    # Without keys there is one client, which has all places.
    if own >= free and new.client != LOCAL:
        rule = f"{own} jobs of {new.client!r} are waiting and {free} places of {limits.max_queued} are free"
        kept = "no client may have more waiting jobs than places are free, so that others find room"
        raise QueueFullError(f"{rule}: {kept}; try again when one has begun", retry_after_s)


def claim(
    connection: sqlite3.Connection, most: Mapping[JobKind, int], now: float, *, alone: bool = False
) -> list[Job]:
    """The next jobs, so many of each kind; with `alone`, of those to be handed out so."""
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
    # A job that comes back has a turn from before, and the queue never goes back.
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
