"""The tables of a queue's database, and migrations from older versions.

A migration is never changed once released: the next one is added below it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from calotype.serve.service import UnavailableError

MIGRATIONS: tuple[str, ...] = (
    # turn and cost: see `repository.enqueue`. end_order: the order in which jobs ended, whatever the clock.
    # A seed can be larger than SQLite's integers, so pictures are JSON.
    # Indexes cover their queries, the state they are restricted to included: rows are large.
    """
    CREATE TABLE jobs (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        client TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'queued'
            CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
        model TEXT NOT NULL,
        request TEXT NOT NULL,
        digest TEXT NOT NULL,
        idempotency_key TEXT,
        priority INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        cost INTEGER NOT NULL,
        created_at REAL NOT NULL,
        started_at REAL,
        ended_at REAL,
        deadline_s REAL,
        steps_done INTEGER NOT NULL DEFAULT 0,
        steps_total INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        losses INTEGER NOT NULL DEFAULT 0,
        stop_wanted INTEGER NOT NULL DEFAULT 0,
        pictures TEXT NOT NULL DEFAULT '[]',
        failure TEXT,
        end_order INTEGER UNIQUE
    ) STRICT;
    CREATE UNIQUE INDEX jobs_by_key ON jobs (client, idempotency_key) WHERE idempotency_key IS NOT NULL;
    CREATE INDEX jobs_waiting ON jobs (priority DESC, turn, sequence, losses, state)
        WHERE state = 'queued';
    CREATE INDEX jobs_waiting_of_client ON jobs (client, priority, turn, cost, state)
        WHERE state = 'queued';
    CREATE INDEX jobs_by_state ON jobs (state, sequence);
    CREATE INDEX jobs_by_end ON jobs (ended_at) WHERE ended_at IS NOT NULL;
    CREATE INDEX jobs_of_client ON jobs (client, sequence);

    CREATE TABLE rounds (priority INTEGER PRIMARY KEY, turn INTEGER NOT NULL) STRICT;
    CREATE TABLE shares (
        client TEXT NOT NULL, priority INTEGER NOT NULL, next_turn INTEGER NOT NULL,
        PRIMARY KEY (client, priority)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE files (
        sha256 TEXT NOT NULL,
        job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
        given INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (sha256, job, given)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX files_of_job ON files (job);
    """,
    # place: order within equal turns; jobs trade turns and places when they are moved.
    # number: a workflow's requested place among its client's jobs. report: see `spec.job`.
    # named: a workflow's images by the names that its nodes got. uploads: sent before any job.
    """
    ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'pictures'
        CHECK (kind IN ('pictures', 'workflow'));
    ALTER TABLE jobs ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN number REAL;
    ALTER TABLE jobs ADD COLUMN report TEXT;
    UPDATE jobs SET place = sequence;
    DROP INDEX jobs_waiting;
    CREATE INDEX jobs_waiting ON jobs (priority DESC, turn, place, losses, kind, state)
        WHERE state = 'queued';
    CREATE INDEX jobs_by_kind ON jobs (kind, sequence);
    CREATE INDEX jobs_unended ON jobs (kind, client) WHERE end_order IS NULL;

    CREATE TABLE named (
        type TEXT NOT NULL, subfolder TEXT NOT NULL, filename TEXT NOT NULL,
        job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (type, subfolder, filename)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX named_of_job ON named (job);
    CREATE TABLE uploads (
        client TEXT NOT NULL, type TEXT NOT NULL, subfolder TEXT NOT NULL, filename TEXT NOT NULL,
        sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, used_at REAL NOT NULL,
        PRIMARY KEY (client, type, subfolder, filename)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX uploads_by_file ON uploads (sha256);
    CREATE INDEX uploads_by_use ON uploads (used_at, bytes);
    """,
    "ALTER TABLE jobs ADD COLUMN preset TEXT",
    # uploads_by_name: for a name that an admin uses without naming its client.
    "CREATE INDEX uploads_by_name ON uploads (filename, subfolder, type, client, sha256)",
    # image_bytes, record_bytes: see `repository.record_sizes`. 0 is unmeasured until the queue is opened.
    # The indexes cover what retention reads: what each client holds, and what of it is oldest.
    """
    ALTER TABLE jobs ADD COLUMN image_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN record_bytes INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX jobs_held ON jobs (client, end_order, image_bytes, record_bytes);
    CREATE INDEX uploads_of_client ON uploads (client, used_at, type, subfolder, filename, bytes);
    """,
)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> int:
    """Bring the tables up to date, one version per transaction; returns the version found."""
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > len(migrations):
        raise UnavailableError(
            f"the queue's database has version {found}, this Calotype knows up to {len(migrations)}; "
            "use the Calotype that wrote it, or a newer one"
        )
    for version, script in enumerate(migrations[found:], start=found + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {version}; COMMIT")
    return found
