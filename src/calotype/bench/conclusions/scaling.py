"""Derives the efficiency of scaling over GPUs, and fits a serial fraction to it.

Amdahl's law gives N GPUs the speed-up N / (1 + f (N - 1)), so the inverse of efficiency is a straight line
through 1 with the serial fraction f as its slope, and linear least squares give f. If the batch grows with
the GPUs, f is the relative increase of the step time per added GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, linear_regression

from calotype.bench.conclusions.group_by import group_across, with_speed
from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.types import Entry

_DEVICES = ("gpus_per_node", "num_nodes", "global_batch")


@dataclass(frozen=True)
class SerialFraction:
    value: float
    residual: float
    """Root mean square distance of the inverse efficiencies from the line."""


@dataclass(frozen=True)
class _Point:
    base: Entry
    entry: Entry
    times: float
    """Number of GPUs divided by the base's."""
    efficiency: float


def fit_serial_fraction(times: Sequence[float], efficiencies: Sequence[float]) -> SerialFraction:
    """Fit runs on `times` as many GPUs as the base; every factor is above 1."""
    added = [number - 1 for number in times]
    lost = [1 / efficiency - 1 for efficiency in efficiencies]
    # The base is a point of the line too; a single run needs it for a slope.
    slope = linear_regression([0.0, *added], [0.0, *lost], proportional=True).slope
    errors = [(y - slope * x) ** 2 for x, y in zip(added, lost, strict=True)]
    return SerialFraction(slope, sqrt(fmean(errors)))


def scaling(entries: Sequence[Entry]) -> list[Statement]:
    """Derive the efficiency of every run on more GPUs than its base, and a fit for each GPU."""
    points = [point for group in group_across(entries, *_DEVICES) for point in _points(group)]
    statements = [_efficiency(point) for point in points]
    by_gpu: dict[tuple[str, str | None], list[_Point]] = {}
    for point in points:
        by_gpu.setdefault((point.base.source, point.base.settings.gpu), []).append(point)
    return statements + [_fit(group) for group in by_gpu.values() if any(map(_gains, group))]


def _points(group: list[Entry]) -> list[_Point]:
    runs = [(entry, value) for entry, value in with_speed(group) if entry.settings.num_gpus]
    if not runs:
        return []
    base, speed = min(
        runs, key=lambda run: (run[0].settings.num_gpus or 1, run[0].settings.global_batch or 0)
    )
    few = base.settings.num_gpus or 1
    return [
        _Point(base, entry, many / few, value / speed)
        for entry, value in runs
        if (many := entry.settings.num_gpus or 1) > few
    ]


def _gains(point: _Point) -> bool:
    """Whether more GPUs were faster; no serial fraction below 1 explains a slowdown."""
    return point.times * point.efficiency > 1


def _efficiency(point: _Point) -> Statement:
    settings, base = point.entry.settings, point.base.settings
    [(_, less), (_, more)] = with_speed((point.base, point.entry))
    grows = "the batch grows with the GPUs"
    if settings.global_batch == base.global_batch:
        grows = "the same global batch"
    return Statement(
        topic="scaling",
        source=point.entry.source,
        says=f"{settings.num_gpus} × {settings.gpu or 'unnamed GPU'} at micro-batch {settings.micro_batch}: "
        f"{point.efficiency:.1%} efficiency over {base.num_gpus} ({grows})",
        value=point.efficiency,
        unit="share",
        arithmetic=f"{more:.4g} / {less:.4g} samples/s/GPU = {point.efficiency:.4f}",
        inputs=(point.entry.id, point.base.id),
        notes=doubts((point.entry, point.base)),
    )


def _fit(group: list[_Point]) -> Statement:
    group = list(filter(_gains, group))
    times, efficiencies = [p.times for p in group], [p.efficiency for p in group]
    fitted = fit_serial_fraction(times, efficiencies)
    sums = " + ".join(f"{x - 1:g} × {1 / y - 1:.4f}" for x, y in zip(times, efficiencies, strict=True))
    squares = " + ".join(f"{x - 1:g}²" for x in times)
    gpu = group[0].base.settings.gpu or "unnamed GPU"
    notes = [] if len(set(times)) > 1 else ["only one number of GPUs, so the law itself is not tested"]
    if fitted.value > 0:
        notes.append(f"the law limits the speedup to 1 / f = {1 / fitted.value:.0f}")
    return Statement(
        topic="scaling",
        source=group[0].base.source,
        says=f"{gpu}: serial fraction {fitted.value:.2%} by Amdahl's law over {len(group)} run(s), "
        f"residual {fitted.residual:.4f} in the inverse of efficiency",
        value=fitted.value,
        unit="share",
        arithmetic=f"f = ({sums}) / ({squares}) = {fitted.value:.5f}",
        inputs=tuple(dict.fromkeys(i for p in group for i in (p.base.id, p.entry.id))),
        notes=(*notes, *doubts(p.entry for p in group)),
    )
