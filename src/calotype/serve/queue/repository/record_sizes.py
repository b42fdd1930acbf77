"""Measures how much of the database each client's rows take, for the limit on records.

A job's row stores the size of its record and of its images, so that summing reads one index and no large row.
"""

from __future__ import annotations

import sqlite3

ROW_BYTES = 512
"""Of a job without its texts: short columns, and its index entries."""
FILE_BYTES = 256
"""Of a file referenced by a job, or of an upload."""

_RECORD_BYTES = f"""
    {ROW_BYTES} + length(request) + length(pictures) + coalesce(length(report), 0)
    + coalesce(length(failure), 0) + {FILE_BYTES} * (SELECT count(*) FROM files WHERE job = jobs.sequence)
"""  # noqa: S608
# A job's images count once it has ended, because they can be deleted with it from then on.
_IMAGE_BYTES = """
    CASE WHEN end_order IS NULL THEN 0
    ELSE (SELECT coalesce(sum(bytes), 0) FROM files WHERE job = jobs.sequence AND given = 0) END
"""
_MEASURE = f"UPDATE jobs SET record_bytes = {_RECORD_BYTES}, image_bytes = {_IMAGE_BYTES}"  # noqa: S608


def measure(connection: sqlite3.Connection, sequence: int) -> None:
    """Store a job's sizes, once its files are inserted."""
    connection.execute(f"{_MEASURE} WHERE sequence = ?", (sequence,))


def measure_unknown(connection: sqlite3.Connection) -> None:
    """Store the sizes of all jobs that have none: those of an older database."""
    connection.execute(
        f"""
        {_MEASURE} WHERE sequence IN
            (SELECT sequence FROM jobs INDEXED BY jobs_held WHERE record_bytes = 0)
        """  # noqa: S608
    )


def held(connection: sqlite3.Connection) -> dict[str, int]:
    """Bytes of each client's rows, unfinished jobs and uploads included."""
    rows = connection.execute(
        f"""
        SELECT client, sum(bytes) FROM (
            SELECT client, sum(record_bytes) AS bytes FROM jobs INDEXED BY jobs_held GROUP BY client
            UNION ALL
            SELECT client, {FILE_BYTES} * count(*) FROM uploads INDEXED BY uploads_of_client GROUP BY client
        ) GROUP BY client
        """  # noqa: S608
    )
    return {row[0]: row[1] for row in rows}
