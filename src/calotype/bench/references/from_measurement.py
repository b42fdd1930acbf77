"""Converts measurements to entries; the rounds of a point become trials of one entry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from calotype.bench.references.training_settings import FAMILIES, training_settings
from calotype.bench.references.types import RECORDS, Entry
from calotype.spec.published_results import Figure, Settings
from calotype.spec.records.measurement import Measurement

_PRECISIONS = get_args(get_args(Settings.model_fields["precision"].annotation)[0])
_RANDOM = "random:"


def of_measurement(values: Mapping[str, Any], place: str) -> Entry:
    """Convert one line of a run's file."""
    measurement = Measurement.model_validate(values)
    file = place.rpartition(":")[0] or place
    return entry_of_measurement(measurement, f"{file}: {measurement.point}", run_of(Path(file)))


def run_of(file: Path) -> str:
    """Return the folder of the file: the records of one run, in one file or several, lie in one folder."""
    return str(file.parent)


def entry_of_measurement(measurement: Measurement, name: str, run: str = "") -> Entry:
    """Convert a measurement; `name` is shared by all rounds of its point."""
    return Entry(
        id=f"{name}, round {measurement.round}",
        source=RECORDS,
        settings=_settings(measurement),
        figures=tuple(_figures(measurement)),
        label=measurement.point,
        outcome=measurement.status,
        trial_of=name,
        run=run,
        swing=_swing(measurement),
    )


def _swing(m: Measurement) -> float:
    """Spread of single units; several rounds replace it. Server requests overlap and have none."""
    wall = m.wall if m.kind != "serve" else None
    return (wall.p95 - wall.p5) / 2 / wall.median if wall else 0.0


def _settings(m: Measurement) -> Settings:
    where = {
        "gpu": m.device,
        "gpus_per_node": m.devices,
        "num_nodes": m.nodes,
        "command": m.command,
        # Each preset counts as a system, so that batches and steps are compared within one preset.
        "software": " ".join(filter(None, (m.system, m.preset))),
    }
    if m.recipe:
        return training_settings(m.recipe).model_copy(update=where)
    request = m.request or {}
    sampling = {name: request.get(name) for name in ("width", "height", "steps", "cfg", "sampler")}
    return Settings.model_validate(
        {
            "work": "inference" if m.kind == "inference" else None,
            # The time of a batch covers everything from text to pixels.
            "loop": ("text", "vae", "unet") if m.kind == "inference" else None,
            "model": FAMILIES.get(m.model.removeprefix(_RANDOM)),
            "weights": m.model,
            "precision": m.precision if m.precision in _PRECISIONS else None,
            "batch": request.get("count"),
            **sampling,
            **where,
        }
    )


def _figures(m: Measurement) -> list[Figure]:
    if m.status != "ok" or m.wall is None or m.samples_per_s is None:
        return []
    figures = [Figure(what="throughput", value=m.samples_per_s, unit="samples/s")]
    if m.kind == "inference":
        figures.append(Figure(what="time", value=m.wall.median, unit="s"))
    steps, evaluations = (m.request or {}).get("steps"), m.series.get("evaluation")
    if steps and evaluations:
        each = sum(evaluations.values) / steps
        figures.append(Figure(what="step_time", value=each, unit="s/step"))
    if m.work:
        figures.append(Figure(what="compute_rate", value=m.work.tflops, unit="TFLOP/s"))
    if m.memory:
        most = max(memory.reserved_bytes for memory in m.memory)
        figures.append(Figure(what="peak_memory", value=most, unit="bytes"))
    return figures
