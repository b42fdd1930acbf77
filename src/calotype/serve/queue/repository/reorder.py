"""Moves queued jobs. The caller owns the transaction.

A move redistributes the same places among the jobs concerned: those of one client, or of all for an admin. So
no other job moves forward or back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from calotype.core.errors import Problem, RequestError
from calotype.serve.queue.repository.rows import find_job, find_row
from calotype.spec.job import Job


def move(connection: sqlite3.Connection, job_id: str, before: str | None, client: str | None) -> Job:
    """Move a queued job in front of another, or to the end; with `client`, among that client's jobs only."""
    for field, moved in (("id", job_id), ("before", before)):
        if moved is not None and (state := find_row(connection, moved, client)["state"]) != "queued":
            rule = f"job {moved} is {state}; only waiting jobs can be moved"
            raise RequestError([Problem(field, rule, moved)])
    _redistribute(connection, _waiting(connection, client), job_id, before)
    return find_job(connection, job_id)


def by_number(connection: sqlite3.Connection, job_id: str) -> None:
    """Move a new job before those of its client that have a larger number."""
    new = find_row(connection, job_id)
    own = _waiting(connection, new["client"])
    before = next((row["id"] for row in own if row["number"] > new["number"]), None)
    if before is not None:
        _redistribute(connection, own, job_id, before)


def moved(
    connection: sqlite3.Connection, published: Mapping[str, int], worth_publishing: Callable[[int, int], bool]
) -> list[Job]:
    """Jobs whose position differs enough from the published one to publish it again; in one pass."""
    order = connection.execute(
        "SELECT id FROM jobs WHERE state = 'queued' ORDER BY priority DESC, turn, place"
    ).fetchall()
    return [
        find_job(connection, row["id"])
        for place, row in enumerate(order)
        if row["id"] in published
        and place != published[row["id"]]
        and worth_publishing(published[row["id"]], place)
    ]


def _waiting(connection: sqlite3.Connection, client: str | None) -> list[sqlite3.Row]:
    return connection.execute(
        """
        SELECT id, priority, turn, place, coalesce(number, sequence) AS number FROM jobs
        WHERE state = 'queued' AND (:client IS NULL OR client = :client)
        ORDER BY priority DESC, turn, place
        """,
        {"client": client},
    ).fetchall()


def _redistribute(
    connection: sqlite3.Connection, rows: list[sqlite3.Row], job_id: str, before: str | None
) -> None:
    if before == job_id:
        return
    order = [row["id"] for row in rows if row["id"] != job_id]
    order.insert(len(order) if before is None else order.index(before), job_id)
    connection.executemany(
        "UPDATE jobs SET priority = ?, turn = ?, place = ? WHERE id = ?",
        [
            (row["priority"], row["turn"], row["place"], moved)
            for row, moved in zip(rows, order, strict=True)
            if row["id"] != moved
        ],
    )
