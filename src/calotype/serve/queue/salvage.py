"""Copies the readable rows of a damaged queue database into a new one.

The damaged file is only read. Each table is read forward up to the first page that SQLite refuses, backward
from its end, and, where its key is a number, from keys in between. Where the schema cannot be read, a copy of
the file gets the schema pages of a new database, which hold the tables' root pages.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from calotype.serve.queue.migrations import MIGRATIONS, migrate
from calotype.serve.queue.repository.complete import GIVEN
from calotype.serve.queue.repository.rows import as_job
from calotype.spec.job import FINAL_STATES, Job

SCRATCH = ".salvage-"
"""Prefix of temporary folders."""
_HIGHEST_KEY = 2**62
_ROWS_AT_ONCE = 256
_STEPS_BEFORE_JUMPS = 1024
"""Keys to try one by one behind an unreadable page, before larger and larger steps."""
_REFUSED_ROW = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    UnicodeError,
    OverflowError,
)
"""What inserting a row of invalid values raises."""
_FILE_NAME = re.compile(r"[0-9a-f]{64}")
"""Rows with any other file name are left out: such a name could be a path."""
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Salvaged:
    """What was copied."""

    jobs: int
    unreadable_jobs: int
    """Jobs that the index of ids still names and whose row cannot be read."""
    complete: bool
    """Whether that index could be read completely."""


def salvage(damaged: Path, target: Path, pictures: Path) -> Salvaged:
    """Write all readable rows of `damaged` to a new database at `target`; a full disk raises."""
    with closing(_new(target)) as new, _readable(damaged) as source:
        migrate(new, MIGRATIONS[: _version(source)])
        new.execute("BEGIN IMMEDIATE")
        for table in _tables(new):
            _copy(source, new, table)
        new.execute("COMMIT")
        migrate(new)
        new.execute("BEGIN IMMEDIATE")
        jobs = _checked_jobs(new)
        for job in jobs:
            _name_files(new, job, pictures)
        new.execute("COMMIT")
        known, complete = _ids(source)
        # A database without a write-ahead log: one file holds everything.
        new.execute("PRAGMA journal_mode = DELETE")
    return Salvaged(len(jobs), len(known - {job.id for job in jobs}), complete)


def _new(path: Path) -> sqlite3.Connection:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


# The damaged file


@contextmanager
def _readable(damaged: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can read the tables of the damaged file."""
    with closing(_opened(damaged, "mode=ro")) as connection:
        if _names_tables(connection):
            yield connection
            return
    with tempfile.TemporaryDirectory(dir=damaged.parent, prefix=SCRATCH) as scratch:
        copy = Path(scratch) / damaged.name
        _with_new_schema(damaged, copy)
        with closing(_opened(copy, "mode=rw")) as connection:
            yield connection


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
    # Text that is not UTF-8 fails its row only, not the whole table.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    # Read a file that is shorter than its first page says as far as it goes.
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _names_tables(connection: sqlite3.Connection) -> bool:
    try:
        return "jobs" in _tables(connection)
    except sqlite3.DatabaseError:
        return False


def _with_new_schema(damaged: Path, copy: Path) -> None:
    """Copy a database and its log, with the schema pages of a new database of the same tables."""
    template = copy.with_name("template.sqlite")
    with closing(_new(template)) as connection:
        migrate(connection)
    size, new = _page_size(template), template.read_bytes()
    page = bytearray(new[:size])
    shutil.copyfile(damaged, copy)
    log = damaged.with_name(f"{damaged.name}-wal")
    if log.exists():
        shutil.copyfile(log, copy.with_name(f"{copy.name}-wal"))
    # Offsets of https://www.sqlite.org/fileformat2.html#the_database_header: read and write version 2 use a
    # log; then the number of pages, an empty list of free pages, and two counters that have to be equal.
    page[18:20] = bytes((2, 2))
    page[28:32] = (copy.stat().st_size // len(page)).to_bytes(4, "big")
    page[32:40] = bytes(8)
    page[92:96] = page[24:28]
    with copy.open("r+b") as file:
        file.write(page)
        for number in _children(page):
            file.seek((number - 1) * size)
            file.write(new[(number - 1) * size : number * size])


def _children(first_page: bytes | bytearray) -> list[int]:
    """The pages below the first one, which holds the whole schema only while that is small.

    Offsets of https://www.sqlite.org/fileformat2.html#b_tree_pages, behind the header of 100 bytes.
    """
    is_interior = first_page[100] == 5
    if not is_interior:
        return []
    cells = int.from_bytes(first_page[103:105])
    places = [int.from_bytes(first_page[at : at + 2]) for at in range(112, 112 + 2 * cells, 2)]
    return [int.from_bytes(first_page[at : at + 4]) for at in (*places, 108)]


def _page_size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])


def _version(source: sqlite3.Connection) -> int:
    try:
        version = int(source.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.DatabaseError:
        version = 0
    return version if 0 < version < len(MIGRATIONS) else len(MIGRATIONS)


def _ids(source: sqlite3.Connection) -> tuple[set[str], bool]:
    """All job ids in the index of ids, which has its own pages; and whether all of it could be read."""
    ids: set[str] = set()
    for order in ("ASC", "DESC"):
        try:
            ids.update(row[0] for row in source.execute(f"SELECT id FROM jobs ORDER BY id {order}"))  # noqa: S608
        except sqlite3.DatabaseError:
            continue
        return ids, True
    return ids, False


# Rows


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return [row[0] for row in rows.fetchall()]


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, int]:
    """Columns, with their position in the primary key; 0 for none."""
    return {row[1]: row[5] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()}


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    wanted = _columns(target, table)
    with suppress(sqlite3.DatabaseError):
        available = _columns(source, table)
        columns = [name for name in wanted if name in available]
        key = sorted((name for name in columns if wanted[name]), key=lambda name: wanted[name])
        marks = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - our own names
        if columns and key:
            rows = _rows(source, table, columns, key)
            if "sha256" in columns:
                place = columns.index("sha256")
                rows = (row for row in rows if _FILE_NAME.fullmatch(str(row[place])))
            for row in rows:
                with suppress(*_REFUSED_ROW):
                    target.execute(insert, row)


def _rows(source: sqlite3.Connection, table: str, columns: list[str], key: list[str]) -> Iterator[Row]:
    """Every readable row, once."""
    reader = _Reader(source, table, columns, key)
    forward = _Reading(reader)
    yield from forward
    if forward.ended:
        return
    backward = _Reading(reader, forward=False, end=forward.last)
    yield from backward
    if len(key) == 1:
        low = forward.last[0] + 1 if forward.last else 0
        high = backward.last[0] if backward.last else _HIGHEST_KEY
        yield from _islands(reader, low, high)


class _Reader:
    """Reads the rows of one table in key order, a limited number at a time."""

    def __init__(self, source: sqlite3.Connection, table: str, columns: list[str], key: list[str]) -> None:
        self._source, self._key = source, ", ".join(key)
        self._down = ", ".join(f"{name} DESC" for name in key)
        self._marks = ", ".join("?" * len(key))
        self._places = [columns.index(name) for name in key]
        self._chosen = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED"  # noqa: S608 - our own names

    def read(self, after: Row | None, most: int, *, forward: bool = True) -> list[Row]:
        """The next rows after a key, or before it; raises where one of them cannot be read."""
        sign, order = (">", self._key) if forward else ("<", self._down)
        where = "" if after is None else f"WHERE ({self._key}) {sign} ({self._marks})"
        query = f"{self._chosen} {where} ORDER BY {order} LIMIT {most}"
        return self._source.execute(query, after or ()).fetchall()

    def key_of(self, row: Row) -> Row:
        return tuple(row[place] for place in self._places)


class _Reading:
    """Iterates over rows up to the first unreadable one, and records how far it came."""

    def __init__(
        self, reader: _Reader, start: Row | None = None, *, forward: bool = True, end: Row | None = None
    ) -> None:
        self._reader, self._forward, self._end = reader, forward, end
        self.last = start
        """The key of the last row that was read."""
        self.ended = False
        """Whether the iteration reached the end without an unreadable row."""

    def __iter__(self) -> Iterator[Row]:
        most = _ROWS_AT_ONCE
        while True:
            try:
                rows = self._reader.read(self.last, most, forward=self._forward)
            except sqlite3.DatabaseError:
                if most == 1:
                    return
                # One at a time, up to the unreadable row itself.
                most = 1
                continue
            for row in rows:
                key = self._reader.key_of(row)
                # Damaged pages can lead in a circle, or to keys of another table.
                if not self._follows(key, self.last):
                    return
                if not self._follows(self._end, key):
                    self.ended = True
                    return
                self.last = key
                yield row
            if not rows:
                self.ended = True
                return

    def _follows(self, key: Row | None, before: Row | None) -> bool:
        if key is None or before is None:
            return True
        with suppress(TypeError):
            return key > before if self._forward else key < before
        return False


def _islands(reader: _Reader, low: int, high: int) -> Iterator[Row]:
    """Rows between unreadable pages, whose keys are at least `low` and below `high`."""
    failed, step = 0, 1
    while low < high:
        if step > 1 and _readable_from(reader, low):
            # The step may have gone too far: begin at the first key that can be read.
            low = _first_readable(reader, low - step, low)
        reading = _Reading(reader, (low - 1,), end=(high,))
        yield from reading
        if reading.ended:
            return
        assert reading.last is not None
        if (last := reading.last[0]) >= low:
            failed, step, low = 0, 1, last + 1
            continue
        failed += 1
        step = 1 if failed <= _STEPS_BEFORE_JUMPS else 2 * step
        low += step


def _readable_from(reader: _Reader, key: int) -> bool:
    try:
        reader.read((key - 1,), 1)
    except sqlite3.DatabaseError:
        return False
    return True


def _first_readable(reader: _Reader, bad: int, good: int) -> int:
    while good - bad > 1:
        middle = (bad + good) // 2
        if _readable_from(reader, middle):
            good = middle
        else:
            bad = middle
    return good


# Validation


def _checked_jobs(target: sqlite3.Connection) -> list[Job]:
    """All valid jobs of the new database; other rows are removed."""
    jobs = []
    for (sequence,) in target.execute("SELECT sequence FROM jobs ORDER BY sequence").fetchall():
        row = target.execute("SELECT * FROM jobs WHERE sequence = ?", (sequence,)).fetchone()
        try:
            job = as_job(target, row)
            names = [*(picture.sha256 for picture in job.pictures), *_input_files(job)]
            if not all(_FILE_NAME.fullmatch(name) for name in names):
                raise ValueError(names)
            jobs.append(job)
        # Text from a damaged page can be anything.
        except (ValueError, TypeError, KeyError):
            target.execute("DELETE FROM jobs WHERE sequence = ?", (sequence,))
    return jobs


def _name_files(target: sqlite3.Connection, job: Job, pictures: Path) -> None:
    """Insert rows for the files that a job names, where the table of files has lost them."""
    made = {picture.sha256 for picture in job.pictures}
    for sha256, given in [*((name, 0) for name in made), *((name, 1) for name in _input_files(job))]:
        path = pictures / sha256
        if path.is_file():
            target.execute(
                "INSERT OR IGNORE INTO files (sha256, job, given, bytes) VALUES (?, ?, ?, ?)",
                (sha256, job.sequence, given, path.stat().st_size),
            )
    for picture in job.pictures:
        if picture.file is not None:
            target.execute(
                "INSERT OR IGNORE INTO named VALUES (?, ?, ?, ?, ?)",
                (
                    picture.file.type,
                    picture.file.subfolder,
                    picture.file.filename,
                    job.sequence,
                    picture.sha256,
                ),
            )


def _input_files(job: Job) -> list[str]:
    """Names of the input files of an unfinished job."""
    if job.state in FINAL_STATES:
        return []
    if job.kind == "workflow":
        return [name for name in job.request.get("inputs", {}).values() if isinstance(name, str)]
    return [file["sha256"] for place in GIVEN if (file := job.request.get(place))]
