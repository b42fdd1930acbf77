"""How many jobs wait and run. Knows nothing of which these are."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

ALONE_AFTER = 2
"""A job that was lost this often is handed out by itself: the next death is then its own doing."""


@dataclass(frozen=True)
class Counts:
    """Of jobs that have not ended."""

    queued: int
    running: int
    alone: int
    """Of those that are queued, the ones that are to run by themselves."""


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
