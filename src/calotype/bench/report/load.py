"""Loads the records that a report shows: measurements, training benchmarks, device peaks, scaling studies.

A file holds JSON Lines or one JSON record; a folder stands for the files of all runs in it. Anything else is
a fault with its file and line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from calotype.bench.records.store import Fault, Stored, files_in
from calotype.core.errors import Problem, RequestError
from calotype.spec.records.device_peak import CeilingRecord
from calotype.spec.records.measurement import FORMAT as MEASUREMENT
from calotype.spec.records.measurement import Measurement
from calotype.spec.records.measurement_training import measurement_of
from calotype.spec.records.scaling import FILE as STUDY_FILE
from calotype.spec.records.scaling import FORMAT as SCALING
from calotype.spec.records.scaling import ScalingRecord
from calotype.spec.records.train_benchmark import FORMAT as TRAINING
from calotype.spec.records.train_benchmark import BenchmarkRecord
from calotype.spec.validation_errors import problems_of

CEILING = "calotype.ceiling.1"
KNOWN = (MEASUREMENT, TRAINING, CEILING, SCALING)


@dataclass
class Material:
    """All records of a report."""

    files: list[Path] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    ceilings: list[CeilingRecord] = field(default_factory=list)
    studies: list[ScalingRecord] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def named(self, file: Path) -> str:
        """Path of a file from the common folder of all files on; its location does not matter to a reader."""
        above = Path(os.path.commonpath([one.absolute().parent for one in self.files])).parent
        return str(file.absolute().relative_to(above)) if file in self.files else str(file)


def gather(places: Iterable[Path]) -> Material:
    """Load all files and folders; raise an error if they hold nothing to show."""
    material = found_in(places)
    if not material.stored and not material.studies:
        problems = [Problem(f"{fault.file}:{fault.line}", fault.reason) for fault in material.faults]
        nothing = Problem(
            "records", "contain no measurements, so there is nothing to show; give a run's records.jsonl"
        )
        raise RequestError([nothing, *problems])
    return material


def found_in(places: Iterable[Path]) -> Material:
    """Load all files and folders, even if they hold nothing."""
    places = list(places)
    studies = [file for place in places if place.is_dir() for file in sorted(place.rglob(STUDY_FILE))]
    material = Material(files=[*files_in(places), *studies])
    for file in material.files:
        for line, text in _texts(file):
            try:
                _take(text, file, line, material)
            except (ValueError, KeyError, TypeError) as error:
                material.faults.append(Fault(file, line, _reason(error)))
    return material


def _texts(file: Path) -> Iterator[tuple[int, str]]:
    # A binary file becomes an unreadable line; it must not abort the report.
    whole = file.read_bytes().decode("utf-8", errors="replace")
    if file.suffix == ".json":
        yield 1, whole
        return
    for number, line in enumerate(whole.split("\n"), start=1):
        if line.strip():
            yield number, line


def _take(text: str, file: Path, line: int, material: Material) -> None:
    values = json.loads(text)
    kind = values.get("format") if isinstance(values, dict) else None
    if kind == MEASUREMENT:
        material.stored.append(Stored(file, line, Measurement.model_validate_json(text)))
    elif kind == TRAINING:
        # Committed records carry additional fields from their scripts.
        known = {key: value for key, value in values.items() if key in BenchmarkRecord.model_fields}
        record = BenchmarkRecord.model_validate(known)
        name = file.stem if file.suffix == ".json" else f"{file.stem} {line}"
        material.stored.append(Stored(file, line, measurement_of(record, name)))
    elif kind == CEILING:
        material.ceilings.append(CeilingRecord.model_validate_json(text))
    elif kind == SCALING:
        material.studies.append(ScalingRecord.model_validate_json(text))
    else:
        raise ValueError(f"format {kind!r} is not one of {', '.join(KNOWN)}")


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(map(str, problems_of(Measurement, error))) or str(error)
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
