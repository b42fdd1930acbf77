"""Pictures that clients gave before any job, and names of pictures that workflows made.

Knows nothing of transactions, which are the caller's, nor of the files themselves.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePosixPath
from typing import Any

from calotype.core.errors import NotFoundError
from calotype.core.paths import LONGEST_NAME
from calotype.serve.queue.limits import QueueLimits
from calotype.spec.job import JobPicture, PictureFile

MOST_LISTED = 10_000
_LONGEST_SUFFIX = 16


@dataclass(frozen=True)
class Upload:
    """A picture that a client gave."""

    file: PictureFile
    bytes: int
    used_at: float
    """When it was given, or last part of a new job."""


@dataclass(frozen=True)
class Attached:
    """Files for a job: their contents by what the job calls them, and their sizes."""

    names: dict[str, str]
    sizes: dict[str, int]


def enter(
    connection: sqlite3.Connection,
    client: str,
    file: PictureFile,
    contents: tuple[str, int],
    now: float,
    *,
    overwrite: bool,
) -> tuple[PictureFile, list[str]]:
    """Keep a picture under its name, or the next free one; answers with that and with files let go."""
    sha256, size = contents
    let_go: list[str] = []
    for name in _names(file.filename):
        chosen = file.model_copy(update={"filename": name})
        known = _upload(connection, client, chosen)
        if known is None or known["sha256"] == sha256 or overwrite:
            let_go = [known["sha256"]] if known else []
            break
    connection.execute(
        "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)",
        (client, chosen.type, chosen.subfolder, chosen.filename, sha256, size, now),
    )
    return chosen, let_go


def listed(connection: sqlite3.Connection, client: str | None) -> list[Upload]:
    """What a client has given, by name; without a client, everybody."""
    rows = connection.execute(
        """
        SELECT * FROM uploads WHERE :client IS NULL OR client = :client
        ORDER BY type, subfolder, filename LIMIT :most
        """,
        {"client": client, "most": MOST_LISTED},
    ).fetchall()
    return [
        Upload(
            PictureFile(filename=row["filename"], subfolder=row["subfolder"], type=row["type"]),
            row["bytes"],
            row["used_at"],
        )
        for row in rows
    ]


def missing(connection: sqlite3.Connection, client: str, inputs: Mapping[str, PictureFile]) -> list[str]:
    """Those of a workflow's pictures that are not there, by what it calls them."""
    found = []
    for called, file in inputs.items():
        try:
            _contents(connection, client, file)
        except NotFoundError:
            found.append(called)
    return found


def remove(connection: sqlite3.Connection, client: str, file: PictureFile) -> list[str]:
    """Forget a given picture; answers with its file."""
    row = _upload(connection, client, file)
    if row is None:
        raise _unknown(file)
    connection.execute(
        "DELETE FROM uploads WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)", tuple(row)[:4]
    )
    return [row["sha256"]]


def forget_old(connection: sqlite3.Connection, limits: QueueLimits, now: float) -> list[str]:
    """Remove what was not used for too long or, the least recently used first, is too much."""
    rows = connection.execute("SELECT * FROM uploads ORDER BY used_at").fetchall()
    total = sum(row["bytes"] for row in rows)
    going = []
    for row in rows:
        if row["used_at"] >= now - limits.max_age_s and total <= limits.max_upload_bytes:
            break
        total -= row["bytes"]
        going.append(row)
    connection.executemany(
        "DELETE FROM uploads WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)",
        [tuple(row)[:4] for row in going],
    )
    return [row["sha256"] for row in going]


def find(
    connection: sqlite3.Connection, client: str, inputs: Mapping[str, PictureFile], now: float
) -> Attached:
    """The files that a new job names: given ones, or pictures of this client's other workflows."""
    names, sizes = {}, {}
    for called, file in inputs.items():
        names[called], size = _contents(connection, client, file)
        sizes[names[called]] = size
        connection.execute(
            "UPDATE uploads SET used_at = ? WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)",
            (now, client, file.type, file.subfolder, file.filename),
        )
    return Attached(names, sizes)


def sha256_of(connection: sqlite3.Connection, client: str | None, file: PictureFile) -> str:
    """The file behind a name; without a client, anybody's."""
    return _contents(connection, client, file)[0]


def name_pictures(connection: sqlite3.Connection, job_id: str, pictures: Sequence[JobPicture]) -> bool:
    """Give a running job's pictures their names; False if it runs no more."""
    row = connection.execute("SELECT * FROM jobs WHERE id = ? AND state = 'running'", (job_id,)).fetchone()
    if row is None:
        return False
    for picture in pictures:
        assert picture.file is not None
        file = picture.file
        connection.execute(
            "INSERT OR REPLACE INTO named VALUES (?, ?, ?, ?, ?)",
            (file.type, file.subfolder, file.filename, row["sequence"], picture.sha256),
        )
        connection.execute(
            "INSERT OR IGNORE INTO files (sha256, job, given, bytes) VALUES (?, ?, 0, ?)",
            (picture.sha256, row["sequence"], picture.bytes),
        )
    return True


def _contents(connection: sqlite3.Connection, client: str | None, file: PictureFile) -> tuple[str, int]:
    place: dict[str, Any] = {"client": client, **file.model_dump()}
    row = connection.execute(
        """
        SELECT named.sha256, files.bytes FROM named
        JOIN jobs ON jobs.sequence = named.job
        JOIN files ON files.job = named.job AND files.sha256 = named.sha256
        WHERE (named.type, subfolder, filename) = (:type, :subfolder, :filename)
        AND (:client IS NULL OR jobs.client = :client)
        UNION ALL
        SELECT sha256, bytes FROM uploads
        WHERE (type, subfolder, filename) = (:type, :subfolder, :filename)
        AND (:client IS NULL OR client = :client)
        LIMIT 1
        """,
        place,
    ).fetchone()
    if row is None:
        raise _unknown(file)
    return str(row[0]), int(row[1])


def _upload(connection: sqlite3.Connection, client: str, file: PictureFile) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM uploads WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)",
        (client, file.type, file.subfolder, file.filename),
    ).fetchone()
    return row


def _unknown(file: PictureFile) -> NotFoundError:
    name = f"{file.subfolder}/{file.filename}" if file.subfolder else file.filename
    return NotFoundError(f"no {file.type} picture {name[:80]!r}; it may have been deleted; send it again")


def _names(name: str) -> Iterator[str]:
    yield name
    path = PurePosixPath(name)
    stem, suffix = (path.stem, path.suffix) if len(path.suffix) <= _LONGEST_SUFFIX else (name, "")
    for number in count(1):
        end = f" ({number}){suffix}"
        # No request could fetch a file whose name is longer.
        yield os.fsencode(stem)[: LONGEST_NAME - len(os.fsencode(end))].decode(errors="ignore") + end
