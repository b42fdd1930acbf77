"""Reads measurements and reports from folders; skips invalid lines and reports them."""

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
"""The file names that `calotype bench` and `calotype report` use."""
MAX_BYTES = 64 * 2**20
"""Size limit of one file."""


@dataclass(frozen=True)
class _Read:
    stamp: tuple[int, int]
    measurements: tuple[Measurement, ...]
    faults: tuple[str, ...]


class Records:
    """The records in some folders; reads a file again when it has changed. Thread-safe."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = tuple(places)
        self._read: dict[Path, _Read] = {}
        self._lock = threading.Lock()

    def listed(self, kind: Kind | None, most: int, *, values: bool) -> dict[str, Any]:
        """Return the latest measurements, optionally of one kind; raw values only on request."""
        found: list[tuple[str, Measurement]] = []
        runs: list[dict[str, Any]] = []
        faults: list[str] = []
        with self._lock:
            for run, file in self._files(RECORDS).items():
                read = self._of(file)
                found += [(run, record) for record in read.measurements if kind in (None, record.kind)]
                faults += read.faults
                runs.append({"run": run, "file": str(file), "measurements": len(read.measurements)})
        found.sort(
            key=lambda pair: pair[1].started_at.timestamp() if pair[1].started_at else 0.0, reverse=True
        )
        excluded = {} if values else {"series": {"__all__": {"values"}}}
        return {
            "places": [str(place) for place in self.places],
            "runs": runs,
            "measurements": [{"run": run, **_dumped(record, excluded)} for run, record in found[:most]],
            "left_out": max(0, len(found) - most),
            "faults": faults,
        }

    def reports(self) -> list[dict[str, Any]]:
        """List the report pages, latest first."""
        pages = [
            {"name": f"{run}/{REPORT}" if run else REPORT, "at": file.stat().st_mtime}
            for run, file in self._files(REPORT).items()
        ]
        return sorted(pages, key=lambda page: page["at"], reverse=True)

    def report(self, name: str) -> bytes:
        """Return one report page."""
        found = {f"{run}/{REPORT}" if run else REPORT: file for run, file in self._files(REPORT).items()}
        if name not in found:
            raise NotFoundError(f"no report {name[:80]!r}; {did_you_mean(name[:80], found)}")
        return found[name].read_bytes()

    def _files(self, name: str) -> dict[str, Path]:
        """Return files of this name by their folder, relative to the searched place."""
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


def _dumped(record: Measurement, excluded: dict[str, Any]) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude=excluded)
