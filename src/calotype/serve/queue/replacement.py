"""A damaged queue database replaced by a new one, the damaged files kept, and what is said about it.

The damaged files, and the pictures that the new database does not know, go into a folder `damaged-DATE-N`
with a report. As long as that folder exists, the deployment says so. A new database that has its final name,
`jobs.sqlite.new`, replaces the old one at the next start even if the process ends in between.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from calotype.core.paths import atomic_write
from calotype.serve.queue.blob_store import BlobStore, sync_file, sync_folder
from calotype.serve.queue.repository import history
from calotype.serve.queue.salvage import SCRATCH, Salvaged, salvage

_log = logging.getLogger(__name__)

DATABASE, PICTURES = "jobs.sqlite", "pictures"
_NEW, _UNFINISHED = f"{DATABASE}.new", f".{DATABASE}.unfinished"
_REPORT = "report.json"


class DamageReport(BaseModel):
    """What happened to one queue database."""

    model_config = ConfigDict(frozen=True, strict=True, use_attribute_docstrings=True)

    found_at: str
    """In UTC."""
    reason: str
    """What was found, and what became of the jobs."""


def replace_damaged(folder: Path, error: str) -> None:
    """Copy what can be read of the folder's database into a new one that takes its place."""
    unfinished = folder / _UNFINISHED
    try:
        found = salvage(folder / DATABASE, unfinished, folder / PICTURES)
    except BaseException:
        _remove(unfinished)
        raise
    where = keep_report(folder, f"the queue database was damaged ({error}) and is replaced: {_said(found)}")
    finish_later(folder, unfinished)
    finish_replacement(folder, where)


def _said(found: Salvaged) -> str:
    """What became of the jobs."""
    jobs = f"{found.jobs} {'job' if found.jobs == 1 else 'jobs'} copied"
    if found.complete:
        return f"{jobs}, {found.unreadable_jobs} not readable"
    if found.unreadable_jobs:
        return f"{jobs}, at least {found.unreadable_jobs} not readable"
    return f"{jobs}; how many more it held is not readable"


def keep_report(folder: Path, reason: str) -> Path:
    """A new folder for damaged files, with a report that says why it exists."""
    now = datetime.now(UTC)
    names = (folder / f"damaged-{now:%Y%m%d-%H%M%S}-{number}" for number in count(1))
    where = next(path for path in names if not path.exists())
    where.mkdir()
    report = DamageReport(found_at=f"{now:%Y-%m-%d %H:%M:%S} UTC", reason=reason)
    with atomic_write(where / _REPORT) as file:
        file.write(report.model_dump_json(indent=2).encode() + b"\n")
    sync_folder(where)
    sync_folder(folder)
    _log.error("%s; the files are kept in %s", reason, where)
    return where


def copy_for_the_next_start(connection: sqlite3.Connection, folder: Path) -> None:
    """Write what an open connection reads to a file that the next start uses as the database."""
    unfinished = folder / _UNFINISHED
    try:
        unfinished.unlink(missing_ok=True)
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except BaseException:
        _remove(unfinished)
        raise
    finish_later(folder, unfinished)


def finish_later(folder: Path, unfinished: Path) -> None:
    """From here on the new database is the one that counts."""
    sync_file(unfinished)
    unfinished.replace(folder / _NEW)
    sync_folder(folder)


def finish_replacement(folder: Path, where: Path | None = None) -> None:
    """Put a new database that waits in the folder into the place of the old one; remove unfinished copies."""
    _remove(folder / _UNFINISHED)
    for scratch in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(scratch, ignore_errors=True)
    new = folder / _NEW
    if not new.exists():
        return
    where = where or next(reversed(damage_folders(folder)), None)
    if where is None:
        where = keep_report(folder, "the queue database was replaced; its report is missing")
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        if (folder / name).exists():
            (folder / name).rename(_free(where / name))
    with closing(sqlite3.connect(f"file:{new}?mode=ro", uri=True)) as connection:
        keep_unknown_pictures(folder, connection, where)
    sync_folder(where)
    new.rename(folder / DATABASE)
    sync_folder(folder)


def keep_unknown_pictures(folder: Path, connection: sqlite3.Connection, where: Path) -> int:
    """Move pictures that no row of a database names out of the way of the sweep of such files."""
    pictures = folder / PICTURES
    if not pictures.is_dir():
        return 0
    unknown = history.unused(connection, BlobStore(pictures).names())
    if unknown:
        (where / PICTURES).mkdir(exist_ok=True)
    for name in unknown:
        (pictures / name).rename(where / PICTURES / name)
    if unknown:
        sync_folder(where / PICTURES)
    return len(unknown)


def damage_folders(folder: Path) -> list[Path]:
    """Folders of damaged files, the oldest first."""
    return sorted(path for path in folder.glob("damaged-*") if path.is_dir())


def damage_notices(folder: Path, *, with_paths: bool = False) -> tuple[str, ...]:
    """What people have to know about these folders of a queue; paths are for people on this machine."""
    return tuple(_notice(path, str(path) if with_paths else path.name) for path in damage_folders(folder))


def _notice(path: Path, shown: str) -> str:
    kept = f"the files are in {shown}; delete that folder to end this notice"
    try:
        report = DamageReport.model_validate_json((path / _REPORT).read_bytes())
    except (OSError, ValidationError):
        return f"a damaged queue database was replaced; {kept}"
    return f"{report.found_at}: {report.reason}; {kept}"


def _free(path: Path) -> Path:
    paths = (path if number == 1 else path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(each for each in paths if not each.exists())


def _remove(unfinished: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)
