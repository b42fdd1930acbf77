"""Reads speeds and memory from a user's own records of sweeps and training benchmarks.

Only records of one whole GPU count, those of a slice or of several GPUs do not.
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
    """Add the speeds in these files to the figures; they replace shipped ones of the same model and GPU.

    The files are `records.jsonl` of `calotype bench inference` and `train`, or what `calotype train
    --benchmark --record` writes.
    """
    sides = {row.model: row.side for row in figures.memory}
    best: dict[tuple[str, str, int], Speed] = {}
    for path in paths:
        rows = [speed for row in _rows(path) if (speed := _speed(row, path.name, sides))]
        if not rows:
            rule = "has no speed of a whole GPU at a model's native size"
            raise RequestError([Problem(str(path), rule)])
        for row in rows:
            # Of several presets and rounds, the fastest.
            key = row.model, row.gpu, row.batch
            best[key] = max(best.get(key, row), row, key=lambda each: each.per_s)
    measured = {(model, gpu) for model, gpu, _ in best}
    others = [row for row in figures.speeds if (row.model, row.gpu) not in measured]
    return replace(figures, speeds=(*others, *best.values()))


def _rows(path: Path) -> list[Measurement]:
    """Read a file with one record, or with one per line."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RequestError([Problem(str(path), f"is not a file of records: {error}")]) from None
    try:
        values = [json.loads(text)]
    except ValueError:
        values = _lines(text, path)
    return [_row(value, path) for value in values]


def _lines(text: bytes, path: Path) -> list[Any]:
    """Parse one record per line; warns about partial lines of a killed writer and skips them."""
    records, problems = [], []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                problems.append(f"{path}:{number}: {error}")
    if not records:
        why = problems[0] if problems else "it is empty"
        raise RequestError([Problem(str(path), f"is not a file of records: {why}")])
    for fault in problems:
        _log.warning("%s; skipped", fault)
    return records


def _row(values: Any, path: Path) -> Measurement:
    ours = isinstance(values, dict) and values.get("format") == FORMAT
    try:
        if ours:
            return Measurement.model_validate(values)
        return measurement_of(BenchmarkRecord.model_validate(values), path.stem)
    except ValidationError as error:
        problems = problems_of(Measurement if ours else BenchmarkRecord, error)
        raise RequestError(problems or [Problem(str(path), "is not a record")]) from None


def _speed(row: Measurement, source: str, sides: dict[str, int]) -> Speed | None:
    if row.status != "ok" or row.samples_per_s is None or row.system != "calotype":
        return None
    if "MIG" in row.device or row.device.upper().startswith("CPU"):
        return None
    if row.kind == "inference":
        return _inference_speed(row, source, sides)
    return _training_speed(row, source) if row.kind == "train" else None


def _inference_speed(row: Measurement, source: str, sides: dict[str, int]) -> Speed | None:
    model, request = row.model.removeprefix("random:"), row.request or {}
    side = sides.get(model)
    if side is None or (request.get("width"), request.get("height")) != (side, side):
        return None
    # Without guidance it takes half the work and less memory; plans are for guided requests.
    if request.get("cfg") == 1:
        return None
    rate = (row.samples_per_s or 0.0) * request["steps"]
    return _on_card(row, Speed(model, row.samples_per_unit or 1, "", 0, rate, f"{source} ({row.preset})"))


def _training_speed(row: Measurement, source: str) -> Speed:
    recipe = (row.recipe or {})["model"]
    each = (row.samples_per_s or 0.0) / (row.devices * row.nodes)
    name, batch = f"train:{recipe['base']}", int(recipe["micro_batch_size"])
    return _on_card(row, Speed(name, batch, "", 0, each, source, unit="samples a second"))


def _on_card(row: Measurement, speed: Speed) -> Speed:
    gpus = row.fingerprint.get("machine", {}).get("gpus", [])
    # Of several GPUs in the machine, the one that it ran on.
    card: dict[str, Any] = next((each for each in gpus if each.get("name") == row.device), {})
    size = card.get("memory_total_bytes") or max((part.total_bytes for part in row.memory), default=None)
    gpu = model_of_card(row.device, size)
    return replace(
        speed,
        gpu=gpu.name if gpu else row.device,
        sms=int(card.get("num_sms") or (gpu.whole.sms if gpu else 0) or 0),
        memory_bytes=max((part.reserved_bytes for part in row.memory), default=0) or None,
    )
