"""What a user's own measurements say of work: rows of sweeps and of training benchmarks as speeds and memory.

Reads files and nothing else: a whole GPU's figures are taken, those of a slice or of several GPUs are not.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from calotype.core.errors import Problem, RequestError
from calotype.mig.performance_model import PerformanceModel, Speed, model_of_card
from calotype.spec.records.measurement import FORMAT, Measurement
from calotype.spec.records.measurement_training import measurement_of
from calotype.spec.records.train_benchmark import BenchmarkRecord
from calotype.spec.validation_errors import problems_of

_log = logging.getLogger(__name__)


def with_records(figures: PerformanceModel, paths: Iterable[Path]) -> PerformanceModel:
    """The figures and what these files add; what they measured stands in for what came along.

    They are `records.jsonl` of `calotype bench inference` and `train`, or what `calotype train --benchmark
    --record` writes.
    """
    sides = {row.model: row.side for row in figures.memory}
    best: dict[tuple[str, str, int], Speed] = {}
    for path in paths:
        rows = [speed for row in _rows(path) if (speed := _speed(row, path.name, sides))]
        if not rows:
            rule = "holds no speed of a whole GPU at a model's own size"
            raise RequestError([Problem(str(path), rule)])
        for row in rows:
            # Of several presets and rounds, the one somebody would run.
            key = row.model, row.gpu, row.batch
            best[key] = max(best.get(key, row), row, key=lambda each: each.per_s)
    measured = {(model, gpu) for model, gpu, _ in best}
    kept = [row for row in figures.speeds if (row.model, row.gpu) not in measured]
    return replace(figures, speeds=(*kept, *best.values()))


def _rows(path: Path) -> list[Measurement]:
    """Of a file with one record, or with one on each line."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RequestError([Problem(str(path), f"is no file of records: {error}")]) from None
    try:
        values = [json.loads(text)]
    except ValueError:
        values = _lines(text, path)
    return [_row(value, path) for value in values]


def _lines(text: bytes, path: Path) -> list[Any]:
    """What a killed writer left in pieces is told and passed over."""
    found, faults = [], []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                faults.append(f"{path}:{number}: {error}")
    if not found:
        why = faults[0] if faults else "it is empty"
        raise RequestError([Problem(str(path), f"is no file of records: {why}")])
    for fault in faults:
        _log.warning("%s; skipped", fault)
    return found


def _row(values: Any, path: Path) -> Measurement:
    ours = isinstance(values, dict) and values.get("format") == FORMAT
    try:
        if ours:
            return Measurement.model_validate(values)
        return measurement_of(BenchmarkRecord.model_validate(values), path.stem)
    except ValidationError as error:
        problems = problems_of(Measurement if ours else BenchmarkRecord, error)
        raise RequestError(problems or [Problem(str(path), "is no record")]) from None


def _speed(row: Measurement, source: str, sides: dict[str, int]) -> Speed | None:
    if row.status != "ok" or row.samples_per_s is None or row.system != "calotype":
        return None
    if "MIG" in row.device or row.device.upper().startswith("CPU"):
        return None
    if row.kind == "inference":
        return _of_pictures(row, source, sides)
    return _of_training(row, source) if row.kind == "train" else None


def _of_pictures(row: Measurement, source: str, sides: dict[str, int]) -> Speed | None:
    model, asked = row.model.removeprefix("random:"), row.request or {}
    side = sides.get(model)
    if side is None or (asked.get("width"), asked.get("height")) != (side, side):
        return None
    # Without guidance it is half the work and less memory; plans are for guided requests.
    if asked.get("cfg") == 1:
        return None
    rate = (row.samples_per_s or 0.0) * asked["steps"]
    return _on_card(row, Speed(model, row.samples_per_unit or 1, "", 0, rate, f"{source} ({row.preset})"))


def _of_training(row: Measurement, source: str) -> Speed:
    recipe = (row.recipe or {})["model"]
    each = (row.samples_per_s or 0.0) / (row.devices * row.nodes)
    name, batch = f"train:{recipe['base']}", int(recipe["micro_batch_size"])
    return _on_card(row, Speed(name, batch, "", 0, each, source, unit="samples a second"))


def _on_card(row: Measurement, speed: Speed) -> Speed:
    cards = row.fingerprint.get("machine", {}).get("gpus", [])
    # Of several in the machine, the one that it ran on.
    card: dict[str, Any] = next((one for one in cards if one.get("name") == row.device), {})
    size = card.get("memory_total_bytes") or max((part.total_bytes for part in row.memory), default=None)
    gpu = model_of_card(row.device, size)
    return replace(
        speed,
        gpu=gpu.name if gpu else row.device,
        sms=int(card.get("num_sms") or (gpu.whole.sms if gpu else 0) or 0),
        memory_bytes=max((part.reserved_bytes for part in row.memory), default=0) or None,
    )
