"""Converts the figures of an entry to common units per GPU, so that entries can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from calotype.bench.references.types import Entry
from calotype.spec.published_results import Figure

Measure = Literal["samples/s/GPU", "pictures × steps/s/GPU", "GiB", "TFLOP/s"]
"""A sample is an image; higher is better, except for memory."""
STEPS: Measure = "pictures × steps/s/GPU"
SPEEDS: tuple[Measure, ...] = ("samples/s/GPU", "pictures × steps/s/GPU", "TFLOP/s")
_GIB = {"GiB": 1.0, "MiB": 2**-10, "GB": 1e9 / 2**30, "KiB": 2**-20, "bytes": 2**-30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "s/step": 1.0, "ms/step": 1e-3, "s/batch": 1.0}


def measures(entry: Entry) -> dict[Measure, float]:
    """Convert the entry's figures; of several in one unit the first counts, for memory the largest."""
    values: dict[Measure, float] = {}
    if entry.outcome != "ok":
        return values
    for figure in entry.figures:
        convert = _CONVERTERS.get(figure.what)
        # Qualified figures (compilation, the first step) are not the measurement.
        if convert is None or (figure.of is not None and figure.what != "peak_memory"):
            continue
        measured = convert(entry, figure)
        if measured is not None:
            name, value = measured
            values[name] = max(values.get(name, 0.0), value) if name == "GiB" else values.get(name, value)
    return values


def seconds(figure: Figure) -> float:
    return figure.value * _SECONDS[figure.unit]


def gib(figure: Figure) -> float:
    return figure.value * _GIB[figure.unit]


def first(entry: Entry, what: str) -> Figure | None:
    """Return the entry's unqualified figure of a kind."""
    return next((figure for figure in entry.figures if figure.what == what and figure.of is None), None)


_Converter = Callable[[Entry, Figure], tuple[Measure, float] | None]


def _throughput(entry: Entry, figure: Figure) -> tuple[Measure, float] | None:
    if figure.unit == "samples/s/GPU":
        return "samples/s/GPU", figure.value
    gpus = entry.settings.num_gpus
    return ("samples/s/GPU", figure.value / gpus) if gpus else None


def _time(entry: Entry, figure: Figure) -> tuple[Measure, float] | None:
    batch, gpus = entry.settings.batch, entry.settings.num_gpus
    if entry.settings.work != "inference" or not (batch and gpus):
        return None
    return "samples/s/GPU", batch / seconds(figure) / gpus


def _step_time(entry: Entry, figure: Figure) -> tuple[Measure, float] | None:
    gpus = entry.settings.num_gpus
    if figure.unit == "s/batch":
        batch = entry.settings.global_batch
        return ("samples/s/GPU", batch / figure.value / gpus) if batch and gpus else None
    batch = entry.settings.batch
    return ("pictures × steps/s/GPU", batch / seconds(figure) / gpus) if batch and gpus else None


def _step_rate(entry: Entry, figure: Figure) -> tuple[Measure, float] | None:
    batch, gpus = entry.settings.batch, entry.settings.num_gpus
    return ("pictures × steps/s/GPU", figure.value * batch / gpus) if batch and gpus else None


def _memory(_entry: Entry, figure: Figure) -> tuple[Measure, float] | None:
    return "GiB", gib(figure)


def _compute(_entry: Entry, figure: Figure) -> tuple[Measure, float] | None:
    # Integer operations are counted like the others.
    return "TFLOP/s", figure.value


_CONVERTERS: dict[str, _Converter] = {
    "throughput": _throughput,
    "time": _time,
    "step_time": _step_time,
    "step_rate": _step_rate,
    "peak_memory": _memory,
    "compute_rate": _compute,
}
