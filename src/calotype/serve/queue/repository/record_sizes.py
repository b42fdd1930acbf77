"""How much of the database each client's rows take, for the limit on records.

A job's row says how large its record and its images are, so that counting reads one index and no large row.
"""

from __future__ import annotations

import sqlite3

ROW_BYTES = 512
"""Of a job beside its texts: short columns, and its entries in the indexes."""
FILE_BYTES = 256
"""Of a file's name in a job, or of an upload."""

_RECORD_BYTES = f"""
    {ROW_BYTES} + length(request) + length(pictures) + coalesce(length(report), 0)
    + coalesce(length(failure), 0) + {FILE_BYTES} * (SELECT count(*) FROM files WHERE job = jobs.sequence)
"""  # noqa: S608
# The images of a job count from its end, when they can be removed with it.
_IMAGE_BYTES = """
    CASE WHEN end_order IS NULL THEN 0
    ELSE (SELECT coalesce(sum(bytes), 0) FROM files WHERE job = jobs.sequence AND given = 0) END
"""
_MEASURE = f"UPDATE jobs SET record_bytes = {_RECORD_BYTES}, image_bytes = {_IMAGE_BYTES}"  # noqa: S608


def measure(connection: sqlite3.Connection, sequence: int) -> None:
    """Write down how large a job is, once its files are entered."""
    connection.execute(f"{_MEASURE} WHERE sequence = ?", (sequence,))


def measure_unknown(connection: sqlite3.Connection) -> None:
    """The same for all jobs that have no size: those of an older database."""
    connection.execute(
        f"""
        {_MEASURE} WHERE sequence IN
            (SELECT sequence FROM jobs INDEXED BY jobs_held WHERE record_bytes = 0)
        """  # noqa: S608
    )


def held(connection: sqlite3.Connection) -> dict[str, int]:
    """Bytes of each client's rows, of jobs that wait or run and of uploads too."""
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
