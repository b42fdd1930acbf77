"""The arithmetic section: TFLOP/s reached as a share of the device's peak, and a roofline."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.report.aggregate import PointView
from calotype.bench.report.document import Cell, Figure, Section, Table, commands_of, number, table, words
from calotype.bench.report.plots.bar_chart import Bar, BarChart, bar_chart
from calotype.bench.report.plots.roofline import Roofline, roofline
from calotype.bench.report.plots.scales import figure
from calotype.bench.report.series import name_of
from calotype.spec.bench_job import OURS
from calotype.spec.records.device_peak import CeilingRecord
from calotype.spec.records.measurement import Measurement

_MOST_BARS, _MOST_REACHED = 14, 4
_ABOVE = "Points above it ran with more threads, higher clocks or less other load than the peak measurement."


def roofline_section(
    points: Sequence[PointView], ceilings: Sequence[CeilingRecord], measured: Sequence[Measurement]
) -> Section:
    counted = [point for point in points if point.tflops]
    return Section(
        "arithmetic",
        "Arithmetic reached",
        "Counted floating-point operations per second of one device, against its measured peak.",
        figures=(*_bars(counted), *_rooflines(counted, ceilings)),
        tables=tuple(_ceilings(ceilings, measured)),
    )


def _bars(points: Sequence[PointView]) -> list[Figure]:
    figures = []
    for count, device in enumerate(dict.fromkeys(point.first.device for point in points), start=1):
        own = sorted((p for p in points if p.first.device == device), key=lambda p: -(p.tflops or 0))
        figures.append(_bar_figure(own, device, count))
    return figures


def _bar_figure(points: Sequence[PointView], device: str, count: int) -> Figure:
    ceilings = [m.work.ceiling_tflops for p in points for m in p.good if m.work and m.work.ceiling_tflops]
    level = ("peak " + figure(max(ceilings)), max(ceilings)) if ceilings else None
    bars = [
        Bar(p.name, p.tflops, _reached(p), color=0 if p.first.system == OURS else -1)
        for p in points[:_MOST_BARS]
    ]
    left = len(points) - len(bars)
    remarks = (
        "The peak is the highest rate measured or specified for a large matrix product." if level else "",
        _ABOVE if level and any((bar.value or 0) > level[1] for bar in bars) else "",
        "Peers are gray." if any(bar.color < 0 for bar in bars) else "",
        f"Shows the {len(bars)} highest; the data table has {left} more." if left else "",
    )
    rows = [(words(p.name), words(name_of(p)), number(p.tflops), _share(p)) for p in points]
    return Figure(
        f"arithmetic-{count}",
        "TFLOP/s reached",
        " ".join(filter(None, (f"{device}.", *remarks))),
        bar_chart(
            BarChart(
                f"TFLOP/s reached on {device}",
                "; ".join(f"{bar.name}: {bar.text}" for bar in bars),
                "TFLOP/s of one device",
                tuple(bars),
                level,
            )
        ),
        table("TFLOP/s reached: data.", ("point", "what", "TFLOP/s", "of peak rate"), rows, keep=3),
        commands_of(point.first.command for point in points),
    )


def _reached(point: PointView) -> str:
    share = point.share_of_ceiling
    return figure(point.tflops or 0) + (f" ({share:.0%})" if share is not None else "")


def _share(point: PointView) -> Cell:
    return number(point.share_of_ceiling, ".1%")


def _rooflines(points: Sequence[PointView], ceilings: Sequence[CeilingRecord]) -> list[Figure]:
    """Return one figure for each device and precision with measurements."""
    figures: list[Figure] = []
    for ceiling in ceilings:
        own = [point for point in points if point.first.device == ceiling.device]
        copies = [rate.best for rate in ceiling.rates if rate.what == "copy"]
        for precision in dict.fromkeys(str(point.first.precision) for point in own):
            matching = [point for point in own if point.first.precision == precision]
            roofs = {
                f"{rate.what} {rate.dtype}": rate.best
                for rate in ceiling.rates
                if rate.what != "copy" and rate.unit == "TFLOP/s" and rate.dtype == precision
            }
            if copies and roofs:
                figures.append(_roofline(matching, ceiling, max(copies), roofs, len(figures) + 1))
    return figures


def _roofline(
    points: Sequence[PointView], ceiling: CeilingRecord, copy: float, roofs: dict[str, float], count: int
) -> Figure:
    best: dict[str, PointView] = {}
    for point in sorted(points, key=lambda p: -(p.tflops or 0)):
        first = point.first
        best.setdefault(" ".join(filter(None, (first.model, first.system, first.preset))), point)
    reached = {name: point.tflops or 0.0 for name, point in list(best.items())[:_MOST_REACHED]}
    top = max(roofs.values())
    ridge = top * 1000 / copy
    rows = [
        *((words(f"roof: {name}"), number(value), words("TFLOP/s")) for name, value in roofs.items()),
        (words("roof: copy"), number(copy), words("GB/s")),
        *((words(f"reached: {name}"), number(value), words("TFLOP/s")) for name, value in reached.items()),
    ]
    says = (
        f"{ceiling.device}. Work with less than {top:.4g} TFLOP/s / {copy / 1000:.4g} TB/s = "
        f"{ridge:.0f} FLOP per byte is bound by memory bandwidth. The bytes moved were not counted, so each "
        "result is a horizontal line: the work lies somewhere on it."
    )
    chart = Roofline(
        title=f"Roofline of {ceiling.device}",
        description="; ".join(f"{row[0].text} {row[1].text} {row[2].text}" for row in rows),
        copy_gb_s=copy,
        roofs=roofs,
        reached=reached,
    )
    return Figure(
        f"roofline-{count}",
        "Roofline",
        says,
        roofline(chart),
        Table("Roofline: data.", ("what", "rate", "unit"), tuple(rows)),
        commands_of([ceiling.command, *(point.first.command for point in best.values())]),
    )


def _ceilings(ceilings: Sequence[CeilingRecord], measured: Sequence[Measurement]) -> list[Table]:
    rows = [
        (words(c.device), words(f"{r.what} {r.dtype}"), number(r.best), number(r.median), words(r.unit))
        for c in ceilings
        for r in c.rates
    ]
    rows += [
        (words(m.device), words(name), number(s.summary.max), number(s.summary.median), words(s.unit))
        for m in measured
        for name, s in m.series.items()
    ]
    if not rows:
        return []
    heads = ("device", "work", "best", "median", "unit")
    return [table("Measured peak rates of the devices.", heads, rows, keep=2)]
