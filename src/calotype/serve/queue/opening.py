"""A queue's database as it is opened: checked, set aside if it is damaged, brought up to date.

Knows nothing of jobs.
"""

from __future__ import annotations

import logging
import sqlite3
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from calotype.serve.queue.files import sync_folder
from calotype.serve.queue.schema import migrate
from calotype.serve.service import UnavailableError

_log = logging.getLogger(__name__)

DATABASE, PICTURES = "jobs.sqlite", "pictures"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TAKEN = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_PATIENCE_S = 5.0
"""For somebody who looks into the database with another program."""


class _DamagedError(Exception):
    pass


def open_database(folder: Path) -> sqlite3.Connection:
    """The database of a deployment's folder, which nobody else has open."""
    path = folder / DATABASE
    try:
        connection = _opened(path)
    except _DamagedError as error:
        where = _set_aside(folder)
        _log.error(
            "the queue's database %s is damaged (%s): it is kept with its pictures in %s, and a new one is "
            "begun; jobs that were waiting in it have to be sent again",
            path,
            error,
            where,
        )
        connection = _opened(path)
    try:
        if migrate(connection) == 0:
            _keep_unknown_pictures(folder)
    except sqlite3.Error as error:
        connection.close()
        raise unavailable(folder, error) from error
    except BaseException:
        connection.close()
        raise
    (folder / PICTURES).mkdir(exist_ok=True)
    sync_folder(folder)
    return connection


def unavailable(folder: Path, error: Exception) -> UnavailableError:
    """What is said when the disk refuses."""
    code = _code(error) if isinstance(error, sqlite3.DatabaseError) else 0
    fix = "its disk must have room and be writable: put that right and try again"
    if code in _DAMAGE:
        fix = "its database is damaged: start the deployment again, which sets it aside"
    elif code in _TAKEN:
        fix = f"another program has had {DATABASE} locked for longer than {_PATIENCE_S:g} s: end that one"
    return UnavailableError(f"the queue in {folder} cannot be used: {error}; {fix}")


def _code(error: sqlite3.DatabaseError) -> int:
    """SQLite's primary error code; Python's own errors have none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        # Every commit is on disk when it returns; `database` makes its exceptions.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _DamagedError(found)
    except sqlite3.DatabaseError as error:
        connection.close()
        if _code(error) in _DAMAGE:
            raise _DamagedError(str(error)) from error
        raise unavailable(path.parent, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _keep_unknown_pictures(folder: Path) -> None:
    """A new database knows no pictures, and what no database knows is swept away: not these."""
    pictures = folder / PICTURES
    if pictures.is_dir() and any(pictures.iterdir()):
        where = _set_aside(folder, PICTURES)
        _log.error("%s held pictures and no database that knows them: they are kept in %s", folder, where)


def _set_aside(folder: Path, *names: str) -> Path:
    """Move what belongs together into a folder with a date."""
    day = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    places = (folder / f"damaged-{day}-{number}" for number in count(1))
    where = next(place for place in places if not place.exists())
    where.mkdir()
    for name in names or (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", PICTURES):
        if (folder / name).exists():
            (folder / name).rename(where / name)
    sync_folder(where)
    sync_folder(folder)
    return where
