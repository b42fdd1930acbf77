"""Converts our records to entries, with one adapter for each record `format`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from calotype.bench.records.store import files_in
from calotype.bench.references.aggregate import aggregate_trials
from calotype.bench.references.from_measurement import of_measurement, run_of
from calotype.bench.references.training_settings import training_settings
from calotype.bench.references.types import RECORDS, Entry
from calotype.core.errors import NotFoundError, Problem, RequestError, did_you_mean
from calotype.spec.published_results import Figure, Outcome
from calotype.spec.records.measurement import FORMAT as MEASUREMENT
from calotype.spec.records.train_benchmark import FORMAT as TRAINING
from calotype.spec.records.train_benchmark import BenchmarkRecord
from calotype.spec.validation_errors import problems_of

_OUTCOMES: dict[str, Outcome] = {"OK": "ok", "OOM": "oom", "Error!": "error"}


@dataclass(frozen=True)
class ReadRecords:
    """Comparable entries of files, and the lines that were skipped."""

    entries: tuple[Entry, ...]
    skipped: tuple[Problem, ...]


@dataclass(frozen=True)
class _Line:
    """An entry and the place of its record."""

    entry: Entry
    point_id: str
    """Identifies the point; all its rounds share it."""
    place: str


def read_records(paths: Sequence[Path]) -> ReadRecords:
    """Read records from JSON and JSON Lines files and from all runs in folders.

    Anything else is skipped and reported; it is an error if no record is left.
    """
    lines: list[_Line] = []
    skipped: list[Problem] = []
    for path in files_in(paths):
        for place, text in _texts(path):
            try:
                values = json.loads(text)
                lines.append(_Line(entry_of(values, place), str(values.get("id")), place))
            except (ValueError, KeyError, RequestError) as error:
                skipped.append(Problem(place, f"is not a record: {_reason(error)}"))
    if paths and not lines:
        raise RequestError(skipped or [Problem("records", "the files are empty; give files with records")])
    entries = aggregate_trials(_without_retried(_with_unique_names(lines)), median)
    return ReadRecords(tuple(entries), tuple(skipped))


def _with_unique_names(lines: Sequence[_Line]) -> list[Entry]:
    """Add the first line to the names of different points that share a name, as from two sweeps."""
    places: dict[str | None, dict[str, str]] = {}
    for line in lines:
        places.setdefault(line.entry.trial_of, {}).setdefault(line.point_id, line.place)
    return [_named(line, places[line.entry.trial_of]) for line in lines]


def _named(line: _Line, places: Mapping[str, str]) -> Entry:
    name = line.entry.trial_of
    if name is None or len(places) == 1:
        return line.entry
    own = f"{name} line {places[line.point_id].rpartition(':')[2]}"
    return replace(line.entry, id=line.entry.id.replace(name, own, 1), trial_of=own)


def _without_retried(entries: Sequence[Entry]) -> list[Entry]:
    """Drop failures of rounds that succeeded on retry."""
    worked = {entry.id for entry in entries if entry.outcome == "ok"}
    return [entry for entry in entries if entry.outcome == "ok" or entry.id not in worked]


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(map(str, problems_of(BenchmarkRecord, error))) or str(error)
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def entry_of(values: object, place: str) -> Entry:
    """Convert one record to an entry."""
    kind = values.get("format") if isinstance(values, Mapping) else None
    adapter = ADAPTERS.get(str(kind))
    if adapter is None or not isinstance(values, Mapping):
        raise RequestError([Problem("format", f"{kind!r}; {did_you_mean(str(kind), ADAPTERS)}")])
    return adapter(values, place)


def _texts(path: Path) -> list[tuple[str, str]]:
    try:
        # A line that was cut inside a character is one unreadable line; the others stay readable.
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file; give a JSON or JSON Lines file of records") from None
    except OSError as error:
        raise RequestError([Problem(str(path), f"cannot be read: {error}")]) from None
    if path.suffix != ".jsonl":
        return [(str(path), text)]
    # Only line feeds separate records: a prompt may contain other line separators.
    lines = enumerate(text.split("\n"), start=1)
    return [(f"{path}:{number}", line) for number, line in lines if line.strip()]


def _of_training(values: Mapping[str, Any], place: str) -> Entry:
    # Committed records carry additional fields from their scripts.
    known = {key: value for key, value in values.items() if key in BenchmarkRecord.model_fields}
    record = BenchmarkRecord.model_validate(known)
    figures: list[Figure] = []
    if record.window:
        figures.append(
            Figure(what="throughput", value=record.window.samples_per_device_s, unit="samples/s/GPU")
        )
        if record.window.tflops_per_device:
            figures.append(Figure(what="compute_rate", value=record.window.tflops_per_device, unit="TFLOP/s"))
    figures += [Figure(what="peak_memory", value=m.reserved_bytes, unit="bytes") for m in record.memory]
    return Entry(
        id=place,
        source=RECORDS,
        settings=training_settings(record.recipe).model_copy(
            update={
                "gpu": record.gpu,
                "gpus_per_node": record.devices,
                "num_nodes": record.nodes,
                "command": record.command,
            }
        ),
        figures=tuple(figures),
        label=str(record.recipe.get("name", "")),
        outcome=_OUTCOMES[record.outcome],
        run=run_of(Path(place)),
    )


ADAPTERS: dict[str, Callable[[Mapping[str, Any], str], Entry]] = {
    TRAINING: _of_training,
    MEASUREMENT: of_measurement,
}
"""Adapter for each record format."""
