"""Plots over batch, resolution, steps, guidance and number of GPUs, from the points available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from calotype.bench.report.aggregate import GIB, PointView, Spread
from calotype.bench.report.document import Cell, Figure, Table, commands_of, number, table, words
from calotype.bench.report.plots.line_chart import MAX_LINES, Dot, Line, LineChart, line_chart
from calotype.bench.report.series import BATCH, CFG, GPUS, SIZE, STEPS, Axis, Chart, charts

MADE = {"inference": "images", "train": "samples", "serve": "requests"}
_UNIT_OF_WORK = {"inference": "one batch", "train": "one training step", "serve": "one request"}
SPREAD = "Whiskers: lowest to highest round, or 5th to 95th percentile of single units for one round."


@dataclass(frozen=True)
class _Measure:
    name: str
    title: str
    unit: Callable[[str], str]
    value: Callable[[PointView], Spread | None]


def _memory(point: PointView) -> Spread | None:
    most = point.memory_gib
    return None if most is None else Spread(most, most, most)


_THROUGHPUT = _Measure("throughput", "Throughput", lambda k: f"{MADE.get(k, 'units')}/s", lambda p: p.rate)
_MEMORY = _Measure("memory", "Peak memory", lambda _: "GiB reserved, highest of all devices", _memory)
_TIME = _Measure(
    "time", "Time", lambda k: f"seconds of {_UNIT_OF_WORK.get(k, 'one unit')}", lambda p: p.seconds
)


@dataclass(frozen=True)
class _Plan:
    axis: Axis
    measure: _Measure
    over: str
    x_label: str
    x_kind: Literal["linear", "log"] = "linear"
    from_zero: bool = False


_PLANS = (
    _Plan(BATCH, _THROUGHPUT, "batch", "batch, logarithmic", "log"),
    _Plan(BATCH, _MEMORY, "batch", "batch, logarithmic", "log"),
    _Plan(SIZE, _THROUGHPUT, "resolution", "resolution, by megapixels", from_zero=True),
    _Plan(SIZE, _MEMORY, "resolution", "resolution, by megapixels", from_zero=True),
    _Plan(STEPS, _TIME, "steps", "sampler steps", from_zero=True),
    _Plan(CFG, _TIME, "guidance", "guidance (cfg)", from_zero=True),
)
_SCALING = _Plan(GPUS, _THROUGHPUT, "number of GPUs", "GPUs", from_zero=True)
_RANKS = replace(_SCALING, over="number of CPU ranks", x_label="CPU ranks")


def shape_figures(points: Sequence[PointView]) -> list[Figure]:
    return [
        _figure(plan, chart, number)
        for plan in _PLANS
        for number, chart in enumerate(charts(points, plan.axis, MAX_LINES), start=1)
        if any(plan.measure.value(point) for point in chart.points)
    ]


def scaling_figures(points: Sequence[PointView]) -> list[Figure]:
    found = charts(points, GPUS, MAX_LINES)
    return [
        _figure(_counted(chart), chart, number, ideal=True) for number, chart in enumerate(found, start=1)
    ]


def _counted(chart: Chart) -> _Plan:
    """Choose the plan by the kind of device."""
    return _RANKS if all(point.first.device.startswith("CPU") for point in chart.points) else _SCALING


def _figure(plan: _Plan, chart: Chart, count: int, *, ideal: bool = False) -> Figure:
    title = f"{plan.measure.title} against {plan.over}"
    what = f"{chart.kind} {chart.model}"
    unit = plan.measure.unit(chart.kind)
    failed = [point for point in chart.points if plan.measure.value(point) is None]
    says = ". ".join(filter(None, (f"{what}, {chart.shared}", _failed(failed)))) + "."
    ideal_line = _ideal_line(chart) if ideal else ()
    drawn = line_chart(
        LineChart(
            title=f"{title}: {what}",
            description=f"{unit} over {plan.over}, {len(chart.bundles)} line(s): {'; '.join(chart.labels)}",
            x_label=plan.x_label,
            y_label=unit,
            ticks={_x(plan, point): plan.axis.told(point) for point in chart.points},
            lines=tuple(
                Line(label or what, tuple(_dot(plan, point) for point in bundle.points))
                for label, bundle in zip(chart.labels, chart.bundles, strict=True)
            ),
            x_kind=plan.x_kind,
            x_from_zero=plan.from_zero,
            ideal=ideal_line,
            ideal_label="linear scaling" if ideal_line else "",
            limits=_limits(chart) if plan.measure is _MEMORY else {},
        )
    )
    return Figure(
        name=f"{plan.measure.name}-{plan.axis.name}-{chart.kind}-{count}",
        title=title,
        says=says,
        plot=drawn,
        data=_data(plan, chart, title, unit, ideal=ideal),
        commands=commands_of(point.first.command for point in chart.points),
    )


def _x(plan: _Plan, point: PointView) -> float:
    value = plan.axis.value(point)
    assert value is not None
    return float(value)


def _dot(plan: _Plan, point: PointView) -> Dot:
    spread = plan.measure.value(point)
    if spread is None:
        return Dot(_x(plan, point), None, failure=point.status if point.failed else "unknown")
    return Dot(_x(plan, point), spread.middle, spread.low, spread.high)


def _failed(points: Sequence[PointView]) -> str:
    causes = [f"{point.name}: {point.status if point.failed else 'unknown'}" for point in points]
    return f"Crosses mark points without a value ({'; '.join(causes)})" if causes else ""


def _limits(chart: Chart) -> dict[str, float]:
    totals = {memory.total_bytes for p in chart.points for m in p.good for memory in m.memory}
    return {f"device memory, {max(totals) / GIB:.0f} GiB": max(totals) / GIB} if totals else {}


def _ideal_line(chart: Chart) -> tuple[tuple[float, float], ...]:
    base = _base(chart.bundles[0].points)
    most = max(point.gpus for point in chart.points)
    if base is None or base.rate is None:
        return ()
    each = base.rate.middle / base.gpus
    return ((float(base.gpus), each * base.gpus), (float(most), each * most))


def _base(points: Sequence[PointView]) -> PointView | None:
    return min((point for point in points if point.rate), key=lambda point: point.gpus, default=None)


def _data(plan: _Plan, chart: Chart, title: str, unit: str, *, ideal: bool) -> Table:
    rows = []
    for label, bundle in zip(chart.labels, chart.bundles, strict=True):
        base = _base(bundle.points) if ideal else None
        for point in bundle.points:
            spread = plan.measure.value(point)
            middle, low, high = (spread.middle, spread.low, spread.high) if spread else (None, None, None)
            status = Cell(point.status, mark="" if point.status == "ok" else "bad")
            place = Cell(plan.axis.told(point), _x(plan, point))
            share = _efficiency(point, base)
            rows.append(
                (place, words(label), number(middle), number(low), number(high), number(share, ".1%"), status)
            )
    heads = (plan.over, "line", unit, "lowest", "highest", "efficiency", "status")
    return table(f"{title}: data.", heads, rows, keep=3)


def _efficiency(point: PointView, base: PointView | None) -> float | None:
    if base is None or base.rate is None or point.rate is None:
        return None
    return point.rate.middle / point.gpus / (base.rate.middle / base.gpus)
