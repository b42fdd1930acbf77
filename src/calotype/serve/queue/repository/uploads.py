"""Manages images that clients uploaded before any job, and names of images that workflows made.

The caller owns the transaction and stores the files.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.paths import MAX_NAME_LENGTH
from calotype.serve.queue.fair_share import Entry, choose_removals
from calotype.serve.queue.limits import QueueLimits
from calotype.spec.job import JobPicture, PictureFile

MAX_LISTED = 10_000
MAX_DELETED = 200
"""In one transaction, as in `history`."""
_MAX_OWNERS = 10
"""Clients whose files an ambiguous name is compared across."""
_MAX_SUFFIX_LENGTH = 16


@dataclass(frozen=True)
class Upload:
    """An image that a client uploaded."""

    file: PictureFile
    bytes: int
    used_at: float
    """When it was uploaded, or last used by a new job."""


@dataclass(frozen=True)
class Attached:
    """Input files of a job: their hashes by the job's names for them, and their sizes."""

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
    """Store an upload under its name, or the next free one; returns the name and the replaced files."""
    sha256, size = contents
    known = _upload(connection, client, file)
    if known is None or known["sha256"] == sha256 or overwrite:
        chosen, replaced = file, [known["sha256"]] if known else []
    else:
        name = _same_file(connection, client, file, sha256) or _free_name(connection, client, file)
        chosen, replaced = file.model_copy(update={"filename": name}), []
    connection.execute(
        "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)",
        (client, chosen.type, chosen.subfolder, chosen.filename, sha256, size, now),
    )
    return chosen, replaced


def listed(connection: sqlite3.Connection, client: str | None) -> list[Upload]:
    """The uploads of a client, or of all clients, by name."""
    where = "" if client is None else "WHERE client = :client"
    rows = connection.execute(
        f"SELECT * FROM uploads {where} ORDER BY type, subfolder, filename LIMIT :most",  # noqa: S608
        {"client": client, "most": MAX_LISTED},
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
    """The names of a workflow's input images that do not exist."""
    names = []
    for name, file in inputs.items():
        try:
            _contents(connection, client, file)
        except NotFoundError:
            names.append(name)
    return names


def remove(connection: sqlite3.Connection, client: str, file: PictureFile) -> list[str]:
    """Delete an upload; returns its file."""
    row = _upload(connection, client, file)
    if row is None:
        raise _unknown(file)
    connection.execute(
        "DELETE FROM uploads WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)", tuple(row)[:4]
    )
    return [row["sha256"]]


def forget_old(connection: sqlite3.Connection, limits: QueueLimits, now: float) -> list[str] | None:
    """Delete some uploads that are too old or exceed a limit; returns their files.

    Where a limit is exceeded, `fair_share` chooses the clients; a client's least recently used go first.
    Returns None when nothing is left to delete.
    """
    rows = connection.execute(
        "SELECT client, type, subfolder, filename FROM uploads WHERE used_at < ? ORDER BY used_at LIMIT ?",
        (now - limits.max_age_s, MAX_DELETED),
    )
    removals = (
        [tuple(row) for row in rows]
        or _over_limit(connection, "bytes", limits.max_upload_bytes)
        or _over_limit(connection, "1", limits.max_uploads)
    )
    if not removals:
        return None
    files = []
    for name in removals:
        place = "(client, type, subfolder, filename) = (?, ?, ?, ?)"
        (sha256,) = connection.execute(f"SELECT sha256 FROM uploads WHERE {place}", name).fetchone()  # noqa: S608
        connection.execute(f"DELETE FROM uploads WHERE {place}", name)  # noqa: S608
        files.append(sha256)
    return files


def _over_limit(
    connection: sqlite3.Connection, size: Literal["bytes", "1"], limit: int
) -> list[tuple[str, ...]]:
    """Uploads to delete so that their bytes, or their number, stay within a limit."""
    rows = connection.execute(
        f"SELECT client, sum({size}) FROM uploads INDEXED BY uploads_of_client GROUP BY client"  # noqa: S608
    )
    held = {row[0]: row[1] for row in rows}

    def oldest_first(client: str) -> Iterator[Entry]:
        rows = connection.execute(
            f"""
            SELECT used_at, {size}, client, type, subfolder, filename
            FROM uploads INDEXED BY uploads_of_client
            WHERE client = ? ORDER BY used_at, type, subfolder, filename
            """,  # noqa: S608
            (client,),
        )
        return (Entry(row[0], row[1], tuple(row)[2:]) for row in rows)

    return [entry.key for entry in choose_removals(limit, held, oldest_first, MAX_DELETED)]


def find(
    connection: sqlite3.Connection, client: str, inputs: Mapping[str, PictureFile], now: float
) -> Attached:
    """The input files of a new job: uploads, or images of this client's workflows."""
    names, sizes = {}, {}
    for name, file in inputs.items():
        names[name], size = _contents(connection, client, file)
        sizes[names[name]] = size
        connection.execute(
            "UPDATE uploads SET used_at = ? WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)",
            (now, client, file.type, file.subfolder, file.filename),
        )
    return Attached(names, sizes)


def sha256_of(connection: sqlite3.Connection, client: str, file: PictureFile, *, others: bool = False) -> str:
    """The hash of a named file: the client's own file first.

    With `others`, a name that the client does not have means the file of the only other client that has it.
    """
    try:
        return _contents(connection, client, file)[0]
    except NotFoundError:
        if not others:
            raise
    return _contents_of_others(connection, file)


def name_pictures(connection: sqlite3.Connection, job_id: str, pictures: Sequence[JobPicture]) -> bool:
    """Store the names of a running job's images; False if it no longer runs."""
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


def _contents(connection: sqlite3.Connection, client: str, file: PictureFile) -> tuple[str, int]:
    # Plain equality, so that both halves are index searches even if other clients have many files.
    row = connection.execute(
        """
        SELECT named.sha256, files.bytes FROM named
        JOIN jobs ON jobs.sequence = named.job
        JOIN files ON files.job = named.job AND files.sha256 = named.sha256
        WHERE (named.type, subfolder, filename) = (:type, :subfolder, :filename)
        AND jobs.client = :client
        UNION ALL
        SELECT sha256, bytes FROM uploads
        WHERE (client, type, subfolder, filename) = (:client, :type, :subfolder, :filename)
        LIMIT 1
        """,
        {"client": client, **file.model_dump()},
    ).fetchone()
    if row is None:
        raise _unknown(file)
    return str(row[0]), int(row[1])


def _contents_of_others(connection: sqlite3.Connection, file: PictureFile) -> str:
    """The hash of a named file of any client; refused where clients have different files."""
    rows = connection.execute(
        """
        SELECT jobs.client, named.sha256 FROM named JOIN jobs ON jobs.sequence = named.job
        WHERE (named.type, subfolder, filename) = (:type, :subfolder, :filename)
        UNION ALL
        SELECT * FROM (
            SELECT client, sha256 FROM uploads INDEXED BY uploads_by_name
            WHERE (filename, subfolder, type) = (:filename, :subfolder, :type)
            ORDER BY client LIMIT :most
        )
        """,
        {**file.model_dump(), "most": _MAX_OWNERS},
    ).fetchall()
    if not rows:
        raise _unknown(file)
    # A client's own workflow takes precedence over its own upload, as in `_contents`.
    hashes: dict[str, str] = {}
    for client, sha256 in rows:
        hashes.setdefault(str(client), str(sha256))
    if len(set(hashes.values())) > 1:
        owners = ", ".join(repr(client) for client in sorted(hashes))
        rule = f"{file.filename[:80]!r} names different files of {len(hashes)} clients: {owners}"
        raise RequestError([Problem("filename", f"{rule}; add `client` to say whose", file.filename)])
    return next(iter(hashes.values()))


def _upload(connection: sqlite3.Connection, client: str, file: PictureFile) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM uploads WHERE (client, type, subfolder, filename) = (?, ?, ?, ?)",
        (client, file.type, file.subfolder, file.filename),
    ).fetchone()
    return row


def _unknown(file: PictureFile) -> NotFoundError:
    name = f"{file.subfolder}/{file.filename}" if file.subfolder else file.filename
    return NotFoundError(f"no {file.type} image {name[:80]!r}; it may have been deleted; send it again")


def _numbered(name: str, number: int) -> str:
    """The name with a number, cut to the longest name that can be fetched."""
    path = PurePosixPath(name)
    stem, suffix = (path.stem, path.suffix) if len(path.suffix) <= _MAX_SUFFIX_LENGTH else (name, "")
    end = f" ({number}){suffix}"
    return os.fsencode(stem)[: MAX_NAME_LENGTH - len(os.fsencode(end))].decode(errors="ignore") + end


def _same_file(connection: sqlite3.Connection, client: str, file: PictureFile, sha256: str) -> str | None:
    """The numbered name under which a client already has the same contents."""
    rows = connection.execute(
        """
        SELECT filename FROM uploads INDEXED BY uploads_by_file
        WHERE (sha256, client, type, subfolder) = (?, ?, ?, ?) LIMIT ?
        """,
        (sha256, client, file.type, file.subfolder, MAX_LISTED),
    )
    for (name,) in rows:
        number = re.search(r" \((\d+)\)[^(]*$", name)
        if number is not None and name == _numbered(file.filename, int(number[1])):
            return str(name)
    return None


def _free_name(connection: sqlite3.Connection, client: str, file: PictureFile) -> str:
    """A free numbered name, hashes by doubling and bisection even if many numbers are taken."""

    def taken(number: int) -> bool:
        numbered = file.model_copy(update={"filename": _numbered(file.filename, number)})
        return _upload(connection, client, numbered) is not None

    # The name without a number is taken; it counts as number 0.
    last, free = 0, 1
    while taken(free):
        last, free = free, 2 * free
    while free - last > 1:
        middle = (last + free) // 2
        last, free = (middle, free) if taken(middle) else (last, middle)
    return _numbered(file.filename, free)
