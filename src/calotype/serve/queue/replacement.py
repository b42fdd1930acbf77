"""Replaces a damaged queue database, keeps the damaged files, and reports it.

The damaged files, and the images that the new database does not name, go into a folder `damaged-DATE-N`
with a report. As long as that folder exists, the deployment shows a notice. A new database that has its final
name, `jobs.sqlite.new`, replaces the old one at the next start even if the process ends in between.
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
    """The report on one damaged or missing queue database."""

    model_config = ConfigDict(frozen=True, strict=True, use_attribute_docstrings=True)

    found_at: str
    """In UTC."""
    reason: str
    """The damage, and what became of the jobs."""


def replace_damaged(folder: Path, error: str) -> None:
    """Copy the readable rows of the folder's database into a new one that takes its place."""
    unfinished = folder / _UNFINISHED
    try:
        salvaged = salvage(folder / DATABASE, unfinished, folder / PICTURES)
    except BaseException:
        _remove(unfinished)
        raise
    damage_folder = keep_report(
        folder, f"the queue database was damaged ({error}) and is replaced: {_summary(salvaged)}"
    )
    finish_later(folder, unfinished)
    finish_replacement(folder, damage_folder)


def _summary(salvaged: Salvaged) -> str:
    """How many jobs were copied."""
    jobs = f"{salvaged.jobs} {'job' if salvaged.jobs == 1 else 'jobs'} copied"
    if salvaged.complete:
        return f"{jobs}, {salvaged.unreadable_jobs} not readable"
    if salvaged.unreadable_jobs:
        return f"{jobs}, at least {salvaged.unreadable_jobs} not readable"
    return f"{jobs}; how many more it held is not readable"


def keep_report(folder: Path, reason: str) -> Path:
    """Create a folder for damaged files, with a report that gives the reason."""
    now = datetime.now(UTC)
    names = (folder / f"damaged-{now:%Y%m%d-%H%M%S}-{number}" for number in count(1))
    damage_folder = next(path for path in names if not path.exists())
    damage_folder.mkdir()
    report = DamageReport(found_at=f"{now:%Y-%m-%d %H:%M:%S} UTC", reason=reason)
    with atomic_write(damage_folder / _REPORT) as file:
        file.write(report.model_dump_json(indent=2).encode() + b"\n")
    sync_folder(damage_folder)
    sync_folder(folder)
    _log.error("%s; the files are kept in %s", reason, damage_folder)
    return damage_folder


def copy_for_the_next_start(connection: sqlite3.Connection, folder: Path) -> None:
    """Copy an open database to a file that the next start uses as the database."""
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
    """Give the new database its final name; it counts from now on."""
    sync_file(unfinished)
    unfinished.replace(folder / _NEW)
    sync_folder(folder)


def finish_replacement(folder: Path, damage_folder: Path | None = None) -> None:
    """Replace the old database by a finished new one, if there is one; remove unfinished copies."""
    _remove(folder / _UNFINISHED)
    for scratch in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(scratch, ignore_errors=True)
    new = folder / _NEW
    if not new.exists():
        return
    damage_folder = damage_folder or next(reversed(damage_folders(folder)), None)
    if damage_folder is None:
        damage_folder = keep_report(folder, "the queue database was replaced; its report is missing")
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        if (folder / name).exists():
            (folder / name).rename(_free(damage_folder / name))
    with closing(sqlite3.connect(f"file:{new}?mode=ro", uri=True)) as connection:
        keep_unknown_pictures(folder, connection, damage_folder)
    sync_folder(damage_folder)
    new.rename(folder / DATABASE)
    sync_folder(folder)


def keep_unknown_pictures(folder: Path, connection: sqlite3.Connection, damage_folder: Path) -> int:
    """Move images that no row names out of the folder, before files without a row are removed."""
    pictures = folder / PICTURES
    if not pictures.is_dir():
        return 0
    unknown = history.unused(connection, BlobStore(pictures).names())
    if unknown:
        (damage_folder / PICTURES).mkdir(exist_ok=True)
    for name in unknown:
        (pictures / name).rename(damage_folder / PICTURES / name)
    if unknown:
        sync_folder(damage_folder / PICTURES)
    return len(unknown)


def damage_folders(folder: Path) -> list[Path]:
    """Folders of damaged files, the oldest first."""
    return sorted(path for path in folder.glob("damaged-*") if path.is_dir())


def damage_notices(folder: Path, *, with_paths: bool = False) -> tuple[str, ...]:
    """Notices about damaged databases of a queue; paths are only for people on this machine."""
    return tuple(_notice(path, str(path) if with_paths else path.name) for path in damage_folders(folder))


def _notice(path: Path, shown: str) -> str:
    files = f"the files are in {shown}; delete that folder to end this notice"
    try:
        report = DamageReport.model_validate_json((path / _REPORT).read_bytes())
    except (OSError, ValidationError):
        return f"a damaged queue database was replaced; {files}"
    return f"{report.found_at}: {report.reason}; {files}"


def _free(taken: Path) -> Path:
    paths = (taken if number == 1 else taken.with_name(f"{taken.name}.{number}") for number in count(1))
    return next(path for path in paths if not path.exists())


def _remove(unfinished: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)
