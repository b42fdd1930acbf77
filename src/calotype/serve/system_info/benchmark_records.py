"""Measurements and reports that lie in folders, read leniently. Knows nothing of how they were made."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.spec.records.measurement import Kind, Measurement

RECORDS, REPORT = "records.jsonl", "report.html"
"""What `calotype bench` and `calotype report` call their files."""
MAX_BYTES = 64 * 2**20
"""Of one file."""


@dataclass(frozen=True)
class _Read:
    stamp: tuple[int, int]
    measurements: tuple[Measurement, ...]
    faults: tuple[str, ...]


class Records:
    """What is found in some folders; a file is read again when it has changed. For any thread."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = tuple(places)
        self._read: dict[Path, _Read] = {}
        self._lock = threading.Lock()

    def listed(self, kind: Kind | None, most: int, *, values: bool) -> dict[str, Any]:
        """The latest measurements, of a kind if one is said; without raw numbers unless they are wanted."""
        found: list[tuple[str, Measurement]] = []
        runs: list[dict[str, Any]] = []
        faults: list[str] = []
        with self._lock:
            for run, file in self._files(RECORDS).items():
                read = self._of(file)
                found += [(run, one) for one in read.measurements if kind in (None, one.kind)]
                faults += read.faults
                runs.append({"run": run, "file": str(file), "measurements": len(read.measurements)})
        found.sort(key=lambda one: one[1].started_at.timestamp() if one[1].started_at else 0.0, reverse=True)
        left_out = {} if values else {"series": {"__all__": {"values"}}}
        return {
            "places": [str(place) for place in self.places],
            "runs": runs,
            "measurements": [{"run": run, **_dumped(one, left_out)} for run, one in found[:most]],
            "left_out": max(0, len(found) - most),
            "faults": faults,
        }

    def reports(self) -> list[dict[str, Any]]:
        """Pages that can be looked at, the latest first."""
        pages = [
            {"name": f"{run}/{REPORT}" if run else REPORT, "at": file.stat().st_mtime}
            for run, file in self._files(REPORT).items()
        ]
        return sorted(pages, key=lambda page: page["at"], reverse=True)

    def report(self, name: str) -> bytes:
        """One of these pages."""
        found = {f"{run}/{REPORT}" if run else REPORT: file for run, file in self._files(REPORT).items()}
        if name not in found:
            raise NotFoundError(f"no report {name[:80]!r}; {did_you_mean(name[:80], found)}")
        return found[name].read_bytes()

    def _files(self, name: str) -> dict[str, Path]:
        """By the folder they are in, as it is seen from where the search began."""
        found: dict[str, Path] = {}
        for place in self.places:
            for file in sorted(place.rglob(name)) if place.is_dir() else ():
                if file.is_file():
                    found.setdefault(str(file.parent.relative_to(place)).removeprefix("."), file)
        return found

    def _of(self, file: Path) -> _Read:
        status = file.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._read.get(file)
        if known is None or known.stamp != stamp:
            known = self._read[file] = _read(file, stamp)
        return known


def _read(file: Path, stamp: tuple[int, int]) -> _Read:
    if stamp[1] > MAX_BYTES:
        return _Read(stamp, (), (f"{file} is {stamp[1]} bytes, the limit is {MAX_BYTES}; skipped",))
    found, faults = [], []
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(Measurement.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            faults.append(f"{file}:{number}: {where}: {first['msg']}; skipped")
    return _Read(stamp, tuple(found), tuple(faults))


def _dumped(one: Measurement, left_out: dict[str, Any]) -> dict[str, Any]:
    return one.model_dump(mode="json", exclude=left_out)
