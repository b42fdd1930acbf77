"""Measurements in files of JSON Lines, one file a run: appended whole, read leniently.

A line is written by one call under a lock on the file, so that writers never interleave and a killed one
leaves at most its own last line in pieces, which the next writer closes and every reader reports and skips.
Knows nothing of what was measured.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from calotype.core.errors import NotFoundError
from calotype.spec.records.measurement import FILE, Measurement

"""What a run's file is called, inside the run's folder."""


@dataclass(frozen=True)
class Fault:
    """A line that is not a measurement."""

    file: Path
    line: int
    """Line number, from 1."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}; skipped"


@dataclass(frozen=True)
class Stored:
    """A measurement with its file and line."""

    file: Path
    line: int
    measurement: Measurement


@dataclass(frozen=True)
class Reading:
    """The measurements of files, and their unreadable lines."""

    stored: tuple[Stored, ...]
    faults: tuple[Fault, ...]

    @property
    def measurements(self) -> list[Measurement]:
        return [one.measurement for one in self.stored]


def append(file: Path, measurement: Measurement) -> None:
    """Append one line atomically, also with concurrent writers."""
    line = measurement.model_dump_json().encode() + b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    place = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        size = os.fstat(place).st_size
        # An incomplete line of a killed writer must not merge with this line.
        torn = size > 0 and os.pread(place, 1, size - 1) != b"\n"
        whole = b"\n" + line if torn else line
        try:
            written = os.write(place, whole)
            if written != len(whole):
                raise OSError(f"{file}: only {written} of {len(whole)} bytes could be written; is it full?")
            os.fsync(place)
        except OSError:
            os.ftruncate(place, size)
            raise
    finally:
        os.close(place)


def read(file: Path) -> Reading:
    """Read every measurement of a file in order; a missing file has none."""
    stored, faults = [], []
    text = file.read_bytes() if file.exists() else b""
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            stored.append(Stored(file, number, Measurement.model_validate_json(line)))
        except ValidationError as error:
            faults.append(Fault(file, number, _reason(error)))
    return Reading(tuple(stored), tuple(faults))


def read_all(places: Iterable[Path]) -> Reading:
    """Read all given files, and every run in the given folders."""
    readings = [read(file) for file in files_in(places)]
    return Reading(
        tuple(one for reading in readings for one in reading.stored),
        tuple(fault for reading in readings for fault in reading.faults),
    )


def files_in(places: Iterable[Path]) -> list[Path]:
    """Return each record file once; raise an error for missing paths."""
    found: dict[Path, None] = {}
    for place in places:
        if not place.exists():
            raise NotFoundError(f"no file or folder {str(place)!r}; name a run's folder or its {FILE}")
        found |= dict.fromkeys(sorted(place.rglob(FILE)) if place.is_dir() else [place])
    return list(found)


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" and {error.error_count() - 1} more" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"
