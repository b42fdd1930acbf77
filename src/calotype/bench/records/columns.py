"""Defines the flat table of measurements: columns with type, meaning and value.

The docs and `calotype bench query --columns` are generated from the same list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from calotype.bench.records.store import Stored
from calotype.spec.records.measurement import Measurement

SqlType = Literal["VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"]


@dataclass(frozen=True)
class Column:
    name: str
    type: SqlType
    meaning: str
    value: Callable[[Stored], Any]


def _of(name: str, kind: SqlType, meaning: str, value: Callable[[Measurement], Any]) -> Column:
    return Column(name, kind, meaning, lambda stored: value(stored.measurement))


def _wall(name: str, attribute: str, meaning: str) -> Column:
    return _of(name, "DOUBLE", meaning, lambda m: getattr(m.wall, attribute) if m.wall else None)


def _size(side: Literal["width", "height"]) -> Callable[[Measurement], Any]:
    return lambda m: (m.request or {}).get(side)


def _batch(m: Measurement) -> Any:
    return m.recipe["model"]["micro_batch_size"] if m.recipe else (m.request or {}).get("count")


def _most(m: Measurement, attribute: str) -> int | None:
    return max((getattr(memory, attribute) or 0 for memory in m.memory), default=None)


def _work(m: Measurement, attribute: str) -> Any:
    return getattr(m.work, attribute) if m.work else None


def _when(m: Measurement) -> datetime | None:
    return m.started_at and m.started_at.astimezone(UTC).replace(tzinfo=None)


COLUMNS: tuple[Column, ...] = (
    Column("file", "VARCHAR", "the run's file", lambda s: str(s.file)),
    Column("line", "BIGINT", "line in it, from 1", lambda s: s.line),
    _of("id", "VARCHAR", "of the point: the same in every round and run", lambda m: m.id),
    _of("point", "VARCHAR", "its name", lambda m: m.point),
    _of("round", "BIGINT", "which repeat of the sweep, from 1", lambda m: m.round),
    _of("kind", "VARCHAR", "inference, train, serve, ceiling or data", lambda m: m.kind),
    _of("system", "VARCHAR", "calotype, diffusers-eager or diffusers-compile", lambda m: m.system),
    _of("model", "VARCHAR", "as it was asked for", lambda m: m.model),
    _of("preset", "VARCHAR", "of the engine", lambda m: m.preset),
    _of(
        "passes",
        "VARCHAR",
        "their names with commas between",
        lambda m: None if m.passes is None else ",".join(m.passes),
    ),
    _of("precision", "VARCHAR", "fp32, fp16 or bf16", lambda m: m.precision),
    _of("batch", "BIGINT", "pictures at once, or the micro-batch", _batch),
    _of("width", "BIGINT", "of a picture", _size("width")),
    _of("height", "BIGINT", "of a picture", _size("height")),
    _of("steps", "BIGINT", "of the sampler", lambda m: (m.request or {}).get("steps")),
    _of("cfg", "DOUBLE", "guidance", lambda m: (m.request or {}).get("cfg")),
    _of("settings", "VARCHAR", "what the sweep varies, as JSON", lambda m: _json(m.settings)),
    _of("device", "VARCHAR", "the GPU's name, or CPU and its model", lambda m: m.device),
    _of("devices", "BIGINT", "on each node", lambda m: m.devices),
    _of("nodes", "BIGINT", "machines", lambda m: m.nodes),
    _of("status", "VARCHAR", "ok, oom or error", lambda m: m.status),
    _of("message", "VARCHAR", "why it failed", lambda m: m.message),
    _wall("wall_median_s", "median", "seconds of one batch or one training step"),
    _wall("wall_mean_s", "mean", "the same, the mean"),
    _wall("wall_p5_s", "p5", "the same, at the fast end"),
    _wall("wall_p95_s", "p95", "the same, at the slow end"),
    _wall("wall_min_s", "min", "the same, the fastest"),
    _wall("wall_max_s", "max", "the same, the slowest"),
    _wall("wall_count", "count", "how many were measured"),
    _of("samples_per_s", "DOUBLE", "pictures or training samples", lambda m: m.samples_per_s),
    _of("load_s", "DOUBLE", "before anything ran", lambda m: m.preparation.load_s),
    _of("compile_s", "DOUBLE", "of the first unit beyond a measured one", lambda m: m.preparation.compile_s),
    _of("warmup_s", "DOUBLE", "all units before the measured ones", lambda m: sum(m.preparation.warmup_s)),
    _of("allocated_bytes", "BIGINT", "peak by tensors", lambda m: _most(m, "allocated_bytes")),
    _of("reserved_bytes", "BIGINT", "peak by torch", lambda m: _most(m, "reserved_bytes")),
    _of("device_bytes", "BIGINT", "peak on the device", lambda m: _most(m, "device_bytes") or None),
    _of("host_peak_bytes", "BIGINT", "peak of main memory", lambda m: m.host_peak_bytes),
    _of("tflop_per_sample", "DOUBLE", "counted arithmetic", lambda m: _work(m, "tflop_per_sample")),
    _of("tflops", "DOUBLE", "reached on each device", lambda m: _work(m, "tflops")),
    _of("ceiling_tflops", "DOUBLE", "the device's measured best", lambda m: _work(m, "ceiling_tflops")),
    _of("share_of_ceiling", "DOUBLE", "tflops / ceiling_tflops", lambda m: _work(m, "share_of_ceiling")),
    _of("psnr_db", "DOUBLE", "to the plain picture", lambda m: m.quality.psnr_db if m.quality else None),
    _of("ssim", "DOUBLE", "to the plain picture", lambda m: m.quality.ssim if m.quality else None),
    _of("energy_j", "DOUBLE", "of the device, all measured units", lambda m: m.energy_j),
    _of("energy_per_sample_j", "DOUBLE", "of one picture or sample", lambda m: m.energy_per_sample_j),
    _of("commit", "VARCHAR", "of the checkout", lambda m: m.commit),
    _of("modified", "BOOLEAN", "whether it was changed since", lambda m: m.modified),
    _of("command", "VARCHAR", "to measure it again", lambda m: m.command),
    _of("started_at", "TIMESTAMP", "in UTC", _when),
    _of("seconds_in_all", "DOUBLE", "of the whole process", lambda m: m.seconds_in_all),
)
"""Columns of the table `measurements`."""

SAMPLE_COLUMNS: dict[str, tuple[SqlType, str]] = {
    "id": ("VARCHAR", "of the point"),
    "point": ("VARCHAR", "its name"),
    "round": ("BIGINT", "which repeat of the sweep, from 1"),
    "series": ("VARCHAR", "what was measured: wall, device, step, loss, …"),
    "unit": ("VARCHAR", "of the value"),
    "number": ("BIGINT", "in the order they came, from 1"),
    "value": ("DOUBLE", "as it was measured"),
}
"""Columns of the table `samples`, which holds every raw number."""


def rows_of(stored: Stored) -> tuple[Any, ...]:
    """Convert a measurement to a row of `measurements`."""
    return tuple(column.value(stored) for column in COLUMNS)


def samples_of(stored: Stored) -> list[tuple[Any, ...]]:
    """Convert a measurement's raw numbers to rows of `samples`."""
    m = stored.measurement
    return [
        (m.id, m.point, m.round, name, series.unit, number, value)
        for name, series in m.series.items()
        for number, value in enumerate(series.values, start=1)
    ]


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
