"""Checks whether a queue can accept jobs: its database is healthy and in its folder, its disk accepts writes.

A database that was deleted, replaced or damaged stays unusable until the next start. A disk that refuses
writes is tried again. Messages are shown to every client, also in readiness answers, so they name no folder.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

from calotype.serve.queue.open_database import is_damage, is_locked, quick_check
from calotype.serve.queue.replacement import DATABASE, copy_for_the_next_start, keep_report
from calotype.serve.service import UnavailableError

_log = logging.getLogger(__name__)

PROBE = ".probe"
_PROBE_BYTES = 2**16
"""About the size of a submission without images."""
_STEPS_BETWEEN_CHECKS = 10_000


class QueueHealth:
    """The health of a queue's database and disk. Used by several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = _identity(folder / DATABASE)
        self._detached: str | None = None
        """What happened to the folder's database if it is no longer the open file."""
        self._report: Path | None = None
        self._stopping = threading.Event()
        self.broken: str | None = None
        """Why no job is accepted before the next start."""
        self.refusal: str | None = None
        """Why the disk refuses writes at the moment."""

    @property
    def detached(self) -> bool:
        """Whether the open database is no longer the file in its folder."""
        return self._detached is not None

    def check_file(self) -> None:
        """Raise UnavailableError unless the open database is sound and the one in its folder."""
        if self.broken is None and (now := _identity(self._folder / DATABASE)) != self._file:
            self._detached = "was deleted" if now is None else "was replaced by another file"
            self._break(
                f"the queue's database {DATABASE} {self._detached} while the deployment runs",
                "stop the deployment and start it again: it copies the jobs that it still has open",
            )
        if self.broken is not None:
            raise UnavailableError(self.broken)

    def note_damage(self, found: str) -> None:
        """Mark the database as damaged, so that no more jobs are accepted."""
        if self.broken is None:
            self._break(
                f"the queue's database {DATABASE} is damaged ({found})",
                "stop the deployment and start it again: it copies the jobs that can be read into a new one",
            )

    def _break(self, what: str, fix: str) -> None:
        self.broken = f"{what}: no more jobs are accepted; {fix}"
        _log.critical("%s", self.broken)

    def save_detached(self, connection: sqlite3.Connection) -> None:
        """Write the open database, which is no longer in its folder, to where the next start finds it."""
        copy_for_the_next_start(connection, self._folder)
        if self._report is None:
            reason = f"{DATABASE} {self._detached} while the deployment ran"
            self._report = keep_report(self._folder, f"{reason}; the next start uses a copy of its jobs")

    # The disk

    def try_file(self) -> None:
        """Write a small file; raises OSError if the disk refuses."""
        path = self._folder / PROBE
        try:
            # Random bytes: a file system that compresses would need no space for zeros.
            path.write_bytes(os.urandom(_PROBE_BYTES))
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def note_disk(self, error: Exception | None) -> None:
        """Record the result of a write: the error, or None if it worked."""
        refusal = None if error is None else _disk_refusal(error)
        if refusal is not None and self.refusal is None:
            _log.error("not ready: %s", refusal)
        elif refusal is None and self.refusal is not None:
            _log.warning("the queue's disk accepts writes again")
        self.refusal = refusal

    # The content of the file

    def quick_check(self) -> None:
        """Read the whole database over a separate connection with SQLite's quick check."""
        uri = f"{(self._folder / DATABASE).absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.set_progress_handler(self._stopping.is_set, _STEPS_BETWEEN_CHECKS)
                found = quick_check(connection)
        except sqlite3.Error as error:
            if not is_damage(error):
                if not self._stopping.is_set():
                    _log.warning("the queue's database could not be checked: %s", error)
                return
            found = str(error)
        if found is not None:
            self.note_damage(found)

    def stop(self) -> None:
        """Interrupt a running check."""
        self._stopping.set()


def rewrite_version(connection: sqlite3.Connection) -> None:
    """Test a write that changes nothing: rewrite the version in the first page."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _disk_refusal(error: Exception) -> str:
    if is_locked(error):
        return f"another program holds the write lock of the queue's database {DATABASE}; end that program"
    refusal = error.strerror if isinstance(error, OSError) else str(error)
    fix = "make room on its disk and make it writable; jobs are then accepted again"
    return f"the queue's disk refuses writes ({refusal or type(error).__name__}): no jobs are accepted; {fix}"
