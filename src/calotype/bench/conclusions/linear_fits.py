"""Fits straight lines by least squares: time and memory over steps, batch and resolution within a source.

The residual shows how linear the data is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, linear_regression

from calotype.bench.conclusions.group_by import group_except, speed, subject
from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.types import Entry
from calotype.bench.references.units import first, measures, seconds

_MIN_POINTS = 3
_Reading = Callable[[Entry], float | None]


@dataclass(frozen=True)
class Line:
    fixed: float
    slope: float
    residual: float
    """Root mean square distance from the line, in the unit of y."""
    worst: float
    """The largest distance from the line."""


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    slope, fixed = linear_regression(xs, ys)
    errors = [y - fixed - slope * x for x, y in zip(xs, ys, strict=True)]
    return Line(fixed, slope, sqrt(fmean(error**2 for error in errors)), max(map(abs, errors)))


def straight_lines(entries: Sequence[Entry]) -> list[Statement]:
    """Fit a line for every axis and every group with at least three points along it."""
    plain = [entry for entry in entries if entry.outcome == "ok" and not entry.settings.switches]
    return [
        _statement(curve, points)
        for curve in _CURVES
        for group in group_except(plain, *curve.free)
        if len(points := _points(curve, group)) >= _MIN_POINTS
    ]


@dataclass(frozen=True)
class _Curve:
    of: str
    unit: str
    per: str
    """The unit of x."""
    free: tuple[str, ...]
    x: _Reading
    y: _Reading


_Points = list[tuple[float, float, Entry]]


def _points(curve: _Curve, group: list[Entry]) -> _Points:
    """Return one point for each x; of several the one without gradient accumulation."""
    found: dict[float, tuple[float, float, Entry]] = {}
    for entry in sorted(group, key=lambda entry: entry.settings.global_batch or 0):
        x, y = curve.x(entry), curve.y(entry)
        if x is not None and y is not None:
            found.setdefault(x, (x, y, entry))
    return [found[x] for x in sorted(found)]


def _statement(curve: _Curve, points: _Points) -> Statement:
    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    line, entries = fit_line(xs, ys), [entry for _, _, entry in points]
    share = line.residual / fmean(ys)
    return Statement(
        topic="straight lines",
        source=entries[0].source,
        says=f"{curve.of} on {subject(entries[0])}: {line.fixed:.4g} {curve.unit} + {line.slope:.4g} "
        f"{curve.unit} per {curve.per}, residual {line.residual:.2g} {curve.unit} ({share:.1%} of the mean)",
        value=line.slope,
        unit=f"{curve.unit} per {curve.per}",
        arithmetic="least squares over " + ", ".join(f"({x:.4g}, {y:.4g})" for x, y, _ in points),
        inputs=tuple(entry.id for entry in entries),
        notes=(f"largest residual {line.worst:.2g} {curve.unit}", *doubts(entries)),
    )


def _time(entry: Entry) -> float | None:
    figure = first(entry, "time") if entry.settings.work == "inference" else None
    return seconds(figure) if figure else None


def _longest(entry: Entry) -> float | None:
    figure = first(entry, "time") if entry.settings.work == "inference" else None
    return figure.high if figure else None


def _step_time(entry: Entry) -> float | None:
    figure = first(entry, "step_time") if entry.settings.work == "inference" else None
    return seconds(figure) if figure else None


def _training_step(entry: Entry) -> float | None:
    found, batch = speed(entry), entry.settings.micro_batch
    return batch / found[1] if found and batch and entry.settings.work == "training" else None


def _memory(entry: Entry) -> float | None:
    return measures(entry).get("GiB")


def _pixels(entry: Entry) -> float | None:
    width, height = entry.settings.width, entry.settings.height
    return width * height / 2**20 if width and height else None


def _setting(name: str) -> _Reading:
    return lambda entry: getattr(entry.settings, name)


_SIZE, _MICRO = ("width", "height"), ("micro_batch", "global_batch")
_CURVES = (
    _Curve("time by steps", "s", "step", ("steps",), _setting("steps"), _time),
    _Curve("longest time by steps", "s", "step", ("steps",), _setting("steps"), _longest),
    _Curve("step time by batch", "s", "image", ("batch",), _setting("batch"), _step_time),
    _Curve("time by batch", "s", "image", ("batch",), _setting("batch"), _time),
    _Curve("memory by batch", "GiB", "image", ("batch",), _setting("batch"), _memory),
    _Curve("step time by resolution", "s", "megapixel (2²⁰)", _SIZE, _pixels, _step_time),
    _Curve("time by resolution", "s", "megapixel (2²⁰)", _SIZE, _pixels, _time),
    _Curve("memory by resolution", "GiB", "megapixel (2²⁰)", _SIZE, _pixels, _memory),
    _Curve("time of a micro-batch", "s", "sample", _MICRO, _setting("micro_batch"), _training_step),
    _Curve("memory by micro-batch", "GiB", "sample", _MICRO, _setting("micro_batch"), _memory),
)
