"""What each pass or switch gives, from points that an ablation named. Derives ratios as sweeps do."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.report.content import Cell, Figure, Section, Table, commands_of, number, table, words
from calotype.bench.report.figures import SPREAD
from calotype.bench.report.plots.bar_chart import Bar, BarChart, bar_chart
from calotype.bench.report.plots.scales import figure
from calotype.bench.report.points import PointView
from calotype.bench.sweep.ratios import Ratio, ratio
from calotype.spec.measurement import VARIANTS_APART

_ORDER = ("all", "none", "without", "with", "only")


def ablation(points: Sequence[PointView]) -> Section:
    groups: dict[tuple[str, str, str], list[PointView]] = {}
    for point in points:
        if point.variant is not None:
            key = (point.first.kind, point.first.model, str(point.rounds[0].file))
            groups.setdefault(key, []).append(point)
    figures: list[Figure] = []
    tables: list[Table] = []
    for count, ((kind, model, _), group) in enumerate(groups.items(), start=1):
        # What failed before it had a device is of the others' device.
        device = next((point.first.device for point in group if point.first.device), "an unknown device")
        ordered = sorted(group, key=lambda point: _ORDER.index(_how(point)))
        what = f"{kind} {model} on {device}"
        figures += _figures(ordered, what, count)
        tables.append(_gains(ordered, what))
    return Section(
        "ablation",
        "What each part gives",
        "Each pass or switch taken away from all of them, and on alone. The dashed line is all of them "
        f"together. {SPREAD}",
        figures=tuple(figures),
        tables=tuple(tables),
    )


def _how(point: PointView) -> str:
    how = str(point.variant).split(VARIANTS_APART)[0].split(" ", 1)[0]
    return how if how in _ORDER else "only"


def _figures(points: Sequence[PointView], what: str, count: int) -> list[Figure]:
    unit = "seconds of one step" if points[0].first.kind == "train" else "seconds of one batch"
    time = [_time_bar(point) for point in points]
    space = [_space_bar(point) for point in points]
    found = [_figure(f"ablation-time-{count}", "Time of each variant", what, unit, time, points)]
    if any(bar.value is not None for bar in space):
        about = "GiB held by tensors, at the peak"
        found.append(
            _figure(f"ablation-memory-{count}", "Memory of each variant", what, about, space, points)
        )
    return found


def _figure(
    name: str, title: str, what: str, unit: str, bars: Sequence[Bar], points: Sequence[PointView]
) -> Figure:
    together = next((bar.value for bar in bars if "all" in bar.name.split(VARIANTS_APART)), None)
    plot = bar_chart(
        BarChart(
            title=f"{title}: {what}",
            description=f"{unit}; " + "; ".join(f"{bar.name}: {bar.text}" for bar in bars),
            x_label=unit,
            bars=tuple(bars),
            level=None if together is None else ("all", together),
        )
    )
    rows = [
        (Cell(bar.name), number(bar.value), number(bar.low), number(bar.high), _status(point))
        for bar, point in zip(bars, points, strict=True)
    ]
    data = table(f"{title}, the numbers.", ("variant", unit, "lowest", "highest", "status"), rows, keep=2)
    return Figure(name, title, f"{what}.", plot, data, commands_of(p.first.command for p in points))


def _status(point: PointView) -> Cell:
    return Cell(point.status, mark="" if point.status == "ok" else "bad")


def _time_bar(point: PointView) -> Bar:
    spread, name = point.seconds, str(point.variant)
    if spread is None:
        return Bar(name, None, point.status)
    colour = _COLOURS.get(_how(point), 0)
    return Bar(name, spread.middle, figure(spread.middle), spread.low, spread.high, colour)


_COLOURS = {"without": 1, "with": 1, "only": 2}


def _space_bar(point: PointView) -> Bar:
    held, name = point.tensors_gib, str(point.variant)
    if held is None:
        return Bar(name, None, point.status if point.failed else "not known")
    colour = _COLOURS.get(_how(point), 0)
    return Bar(name, held, figure(held), colour=colour)


def _gains(points: Sequence[PointView], what: str) -> Table:
    by_variant = {label: point for point in points for label in str(point.variant).split(VARIANTS_APART)}
    parts = dict.fromkeys(name.split(" ", 1)[1] for name in by_variant if " " in name)
    rows = []
    for part in parts:
        every, nothing = by_variant.get("all"), by_variant.get("none")
        alone = by_variant.get(f"only {part}")
        on, off = every, by_variant.get(f"without {part}")
        if f"with {part}" in by_variant:
            on, off = by_variant[f"with {part}"], every
        rows.append((words(part), *_cells(on, off), *_cells(alone, nothing)))
    heads = (
        "part",
        "times as fast with it, among all",
        "memory, GiB",
        "times as fast alone",
        "memory alone, GiB",
    )
    note = (
        "A question mark: the spread does not bear the difference out. Memory: what it adds to the peak of "
        "tensors."
    )
    return table(f"What each part gives: {what}.", heads, rows, note, keep=2)


def _cells(one: PointView | None, other: PointView | None) -> tuple[Cell, Cell]:
    if one is None or other is None:
        return Cell(""), Cell("")
    found = ratio([r.measurement for r in one.rounds], [r.measurement for r in other.rounds])
    if found is None:
        return Cell("failed", mark="bad"), Cell("")
    held = [point.tensors_gib for point in (one, other)]
    more = held[0] - held[1] if held[0] is not None and held[1] is not None else None
    return ratio_cell(found), number(more, "+.2f")


def ratio_cell(found: Ratio) -> Cell:
    return Cell(str(found), found.value)
