"""The ablation section: the gain of each pass or switch, from the variants of an ablation."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.report.aggregate import PointView
from calotype.bench.report.document import Cell, Figure, Section, Table, commands_of, number, table, words
from calotype.bench.report.plots.bar_chart import Bar, BarChart, bar_chart
from calotype.bench.report.plots.scales import figure
from calotype.bench.report.sections.shape_plots import SPREAD
from calotype.bench.sweep.ratios import Ratio, ratio
from calotype.spec.records.measurement import VARIANT_SEPARATOR

_ORDER = ("all", "none", "without", "with", "only")
_SHAPE = ("width", "height", "count", "steps", "cfg", "sampler", "schedule")


def ablation(points: Sequence[PointView]) -> Section:
    groups = _ablations([point for point in points if point.variant is not None])
    figures: list[Figure] = []
    tables: list[Table] = []
    for count, group in enumerate(groups, start=1):
        baseline = _Baseline(group)
        ordered = sorted(group, key=lambda point: _ORDER.index(_how(point)))
        what = _what(group, groups)
        figures += _figures(ordered, what, baseline, count)
        tables.append(_gains(ordered, what, baseline))
    return Section(
        "ablation", "Gain of each pass or switch", SPREAD, figures=tuple(figures), tables=tuple(tables)
    )


def _ablations(points: Sequence[PointView]) -> list[list[PointView]]:
    """Group the points of one ablation: a folder may hold several, each with a variant once."""
    groups: list[list[PointView]] = []
    for point in points:
        match = next((group for group in groups if all(_together(point, one) for one in group)), None)
        if match is None:
            groups.append([point])
        else:
            match.append(point)
    return groups


def _together(one: PointView, other: PointView) -> bool:
    if _run(one) != _run(other) or not set(_labels(one)).isdisjoint(_labels(other)):
        return False
    requests = [point.first.request or {} for point in (one, other)]
    # A point that failed early lacks the values that the model would have chosen.
    pairs = [[request.get(key) for request in requests] for key in _SHAPE]
    return all(first == second for first, second in pairs if first is not None and second is not None)


def _run(point: PointView) -> tuple[str, str, str]:
    return point.first.kind, point.first.model, str(point.rounds[0].file)


def _what(group: Sequence[PointView], groups: Sequence[Sequence[PointView]]) -> str:
    """Describe the ablation, with its shape where the run holds several."""
    first = group[0].first
    # A point that failed before it had a device belongs to the others' device.
    device = next((point.first.device for point in group if point.first.device), "an unknown device")
    what = f"{first.kind} {first.model} on {device}"
    point = next((one for one in group if one.good), group[0])
    shape = (
        "{}×{}".format(*point.size) if point.size else "",
        f"batch {point.batch}" if point.batch else "",
        f"steps {point.steps}" if point.steps else "",
    )
    alone = sum(_run(other[0]) == _run(group[0]) for other in groups) == 1
    return what if alone else ", ".join(filter(None, (what, *shape)))


class _Baseline:
    """What the variants are compared with: all passes together, or the base that each row changes."""

    def __init__(self, points: Sequence[PointView]) -> None:
        self.base = next((point for point in points if "all" in _labels(point)), None)
        # Rows of a handwritten table, not passes that were removed.
        self.is_table = {_how(point) for point in points} <= {"all", "with"} and self.base is not None
        sizes = {point.first.samples_per_unit for point in points if point.good}
        self.same_size = len(sizes) < 2

    @property
    def level(self) -> str:
        return self.base.first.point if self.is_table and self.base else "all"

    @property
    def says(self) -> str:
        if self.is_table:
            return f"Each row changes settings of {self.level}, the dashed line."
        return (
            "Each pass or switch is removed from the full set, and enabled alone. The dashed line is the "
            "full set."
        )

    def label(self, point: PointView) -> str:
        name = point.first.point if self.is_table else str(point.variant)
        odd = self.base is not None and point.batch != self.base.batch
        return f"{name} (batch {point.batch})" if odd else name


def _labels(point: PointView) -> list[str]:
    return str(point.variant).split(VARIANT_SEPARATOR)


def _how(point: PointView) -> str:
    how = str(point.variant).split(VARIANT_SEPARATOR)[0].split(" ", 1)[0]
    return how if how in _ORDER else "only"


def _figures(points: Sequence[PointView], what: str, baseline: _Baseline, count: int) -> list[Figure]:
    unit = "seconds of one step" if points[0].first.kind == "train" else "seconds of one batch"
    if not baseline.same_size:
        unit = "milliseconds of one sample"
    time = [_time_bar(point, baseline) for point in points]
    space = [_space_bar(point, baseline) for point in points]
    about = "GiB of tensors at the peak"
    figures = [_figure(f"ablation-time-{count}", "Time of each variant", what, unit, time, points, baseline)]
    if any(bar.value is not None for bar in space):
        name = f"ablation-memory-{count}"
        figures.append(_figure(name, "Memory of each variant", what, about, space, points, baseline))
    return figures


def _figure(
    name: str,
    title: str,
    what: str,
    unit: str,
    bars: Sequence[Bar],
    points: Sequence[PointView],
    baseline: _Baseline,
) -> Figure:
    of_base = [bar.value for bar, point in zip(bars, points, strict=True) if point is baseline.base]
    level = next(iter(of_base), None)
    plot = bar_chart(
        BarChart(
            title=f"{title}: {what}",
            description=f"{unit}; " + "; ".join(f"{bar.name}: {bar.text}" for bar in bars),
            x_label=unit,
            bars=tuple(bars),
            level=None if level is None else (baseline.level, level),
        )
    )
    rows = [
        (Cell(bar.name), number(bar.value), number(bar.low), number(bar.high), _status(point))
        for bar, point in zip(bars, points, strict=True)
    ]
    data = table(f"{title}: data.", ("variant", unit, "lowest", "highest", "status"), rows, keep=2)
    commands = commands_of(p.first.command for p in points)
    return Figure(name, title, f"{what}. {baseline.says}", plot, data, commands)


def _status(point: PointView) -> Cell:
    return Cell(point.status, mark="" if point.status == "ok" else "bad")


def _time_bar(point: PointView, baseline: _Baseline) -> Bar:
    spread, name = point.seconds, baseline.label(point)
    if spread is None:
        return Bar(name, None, point.status)
    # Step times of different batch sizes are not comparable; times per sample are.
    each = 1.0 if baseline.same_size else 1000 / (point.good[0].samples_per_unit or 1)
    middle, low, high = (each * value for value in (spread.middle, spread.low, spread.high))
    return Bar(name, middle, figure(middle), low, high, _COLORS.get(_how(point), 0))


_COLORS = {"without": 1, "with": 1, "only": 2}


def _space_bar(point: PointView, baseline: _Baseline) -> Bar:
    held, name = point.tensors_gib, baseline.label(point)
    if held is None:
        return Bar(name, None, point.status if point.failed else "unknown")
    return Bar(name, held, figure(held), color=_COLORS.get(_how(point), 0))


def _gains(points: Sequence[PointView], what: str, baseline: _Baseline) -> Table:
    by_variant = {label: point for point in points for label in _labels(point)}
    parts = dict.fromkeys(name.split(" ", 1)[1] for name in by_variant if " " in name)
    rows = []
    for part in parts:
        every, nothing = by_variant.get("all"), by_variant.get("none")
        alone = by_variant.get(f"only {part}")
        on, off = every, by_variant.get(f"without {part}")
        if f"with {part}" in by_variant:
            on, off = by_variant[f"with {part}"], every
        name = baseline.label(on) if baseline.is_table and on else part
        rows.append((words(name), *_cells(on, off), *_cells(alone, nothing)))
    heads = (
        "row" if baseline.is_table else "pass or switch",
        f"times as fast as {baseline.level}" if baseline.is_table else "times as fast, in the full set",
        "memory, GiB",
        "times as fast alone",
        "memory alone, GiB",
    )
    note = (
        "A question mark means that the spread is unknown or larger than the difference. Memory is the "
        "change of the tensors' peak."
    )
    return table(f"Gain of each pass or switch: {what}.", heads, rows, note, keep=2)


def _cells(one: PointView | None, other: PointView | None) -> tuple[Cell, Cell]:
    if one is None or other is None:
        return Cell(""), Cell("")
    speedup = ratio([r.measurement for r in one.rounds], [r.measurement for r in other.rounds])
    if speedup is None:
        return Cell("failed", mark="bad"), Cell("")
    held = [point.tensors_gib for point in (one, other)]
    more = held[0] - held[1] if held[0] is not None and held[1] is not None else None
    return ratio_cell(speedup), number(more, "+.2f")


def ratio_cell(found: Ratio) -> Cell:
    return Cell(str(found), found.value)
