"""Whether a queue can accept jobs: its database is sound and in its folder, and its disk takes writes.

A database that was deleted, replaced or damaged stays unusable up to the next start. A disk that refuses
writes is tried again. Texts are for everybody, readiness included: they name no folder.
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
"""About what a submission without pictures needs."""
_STEPS_BETWEEN_LOOKS = 10_000


class QueueHealth:
    """What is known about a queue's database and disk. Used by several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = _identity(folder / DATABASE)
        self._detached: str | None = None
        """How the folder's database became another file than the one that is open."""
        self._report: Path | None = None
        self._stopping = threading.Event()
        self.broken: str | None = None
        """Why nothing is accepted before the next start."""
        self.refusal: str | None = None
        """Why the disk does not take writes at the moment."""

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
        """The database is damaged: accept nothing more."""
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
        """Write a small file; what the disk refuses is an OSError."""
        path = self._folder / PROBE
        try:
            # Not zeros: a file system that compresses would need no room for them.
            path.write_bytes(os.urandom(_PROBE_BYTES))
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def note_disk(self, error: Exception | None) -> None:
        """What came of writing: the error, or that it worked."""
        said = None if error is None else _disk_refusal(error)
        if said is not None and self.refusal is None:
            _log.error("not ready: %s", said)
        elif said is None and self.refusal is not None:
            _log.warning("the queue's disk takes writes again")
        self.refusal = said

    # The content of the file

    def quick_check(self) -> None:
        """Read the whole database by a connection of its own, as SQLite's quick check does."""
        uri = f"{(self._folder / DATABASE).absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.set_progress_handler(self._stopping.is_set, _STEPS_BETWEEN_LOOKS)
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
        """End a check under way."""
        self._stopping.set()


def rewrite_version(connection: sqlite3.Connection) -> None:
    """A write that changes nothing: the version that the first page has."""
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
    said = error.strerror if isinstance(error, OSError) else str(error)
    fix = "make room on its disk and make it writable; jobs are then accepted again"
    return f"the queue's disk refuses writes ({said or type(error).__name__}): no jobs are accepted; {fix}"
