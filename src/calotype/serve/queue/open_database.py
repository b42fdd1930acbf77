"""Opens a queue's database: checks it, replaces it if it is damaged, and migrates it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from calotype.serve.queue.blob_store import sync_folder
from calotype.serve.queue.migrations import migrate
from calotype.serve.queue.replacement import (
    DATABASE,
    PICTURES,
    finish_replacement,
    keep_report,
    keep_unknown_pictures,
    replace_damaged,
)
from calotype.serve.service import UnavailableError

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_TIMEOUT_S = 5.0
"""Time for another program that reads or changes the database."""


class _DamagedError(Exception):
    pass


def open_database(folder: Path) -> sqlite3.Connection:
    """Open the database of a queue's folder, which no other server has open."""
    path = folder / DATABASE
    finish_replacement(folder)
    try:
        connection = _opened(path)
    except _DamagedError as error:
        replace_damaged(folder, str(error))
        connection = _opened(path)
    try:
        if migrate(connection) == 0:
            _report_missing_database(folder, connection)
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
    """The error to raise when the disk or the database refuses."""
    fix = "its disk must have space and be writable: fix that and try again"
    if is_damage(error):
        fix = "its database is damaged: start the deployment again, which copies what can be read"
    elif is_locked(error):
        fix = f"another program has held the lock of {DATABASE} for longer than {_TIMEOUT_S:g} s: end it"
    return UnavailableError(f"the queue in {folder} cannot be used: {error}; {fix}")


def is_damage(error: Exception) -> bool:
    """Whether an error says that the database's file is damaged."""
    return _code(error) in _DAMAGE


def quick_check(connection: sqlite3.Connection) -> str | None:
    """Read the whole database; returns the first damage in one line, or None."""
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return None if found == "ok" else " ".join(found.replace("*** in database main ***", "").split())


def is_locked(error: Exception) -> bool:
    """Whether an error says that another process has a needed lock."""
    return _code(error) in _LOCKED


def _code(error: Exception) -> int:
    """SQLite's primary error code; Python's own errors have none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        # Every commit is on disk when it returns; `database` makes exceptions.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        if damage := quick_check(connection):
            raise _DamagedError(damage)
    except sqlite3.DatabaseError as error:
        connection.close()
        if is_damage(error):
            raise _DamagedError(str(error)) from error
        raise unavailable(path.parent, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _report_missing_database(folder: Path, connection: sqlite3.Connection) -> None:
    """Report a missing database, and keep its images: the next start would remove files that no row names."""
    pictures = folder / PICTURES
    if pictures.is_dir() and any(pictures.iterdir()):
        reason = f"{DATABASE} is missing: the new queue is empty, and the images of the earlier one are kept"
        keep_unknown_pictures(folder, connection, keep_report(folder, reason))
