"""Draws line charts: each line labeled at its end, with the spread of every point and units on both axes.

The y axis starts at zero unless it is logarithmic. A failed point is a cross at the bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree.ElementTree import Element

from calotype.bench.report.plots.canvas import (
    FONT,
    LINE,
    NUM_COLORS,
    WIDTH,
    canvas,
    cross,
    draw,
    hint,
    mark,
    whisker,
    width_of,
    wrapped,
    write,
    write_lines,
)
from calotype.bench.report.plots.scales import Scale, apart, figure, log_ticks, round_ticks, shown

MAX_LINES = NUM_COLORS
HEIGHT, _TOP, _BOTTOM, _RIGHT = 300, 30, 246, 16
_LABEL_ROOM = 118


@dataclass(frozen=True)
class Dot:
    x: float
    y: float | None
    """None for a failed point."""
    low: float = 0.0
    high: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class Line:
    label: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class LineChart:
    title: str
    description: str
    x_label: str
    y_label: str
    ticks: dict[float, str]
    """Labels of the x axis."""
    lines: tuple[Line, ...]
    x_kind: Literal["linear", "log"] = "linear"
    x_from_zero: bool = False
    y_kind: Literal["linear", "log"] = "linear"
    ideal: tuple[tuple[float, float], ...] = ()
    """A dashed line for comparison."""
    ideal_label: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    """Horizontal dashed lines by name, shown unless they lie far above all points."""


def line_chart(chart: LineChart) -> Element:
    root = canvas(HEIGHT, chart.title, chart.description)
    x, y = _scales(chart)
    _y_axis(root, chart, y, x.end)
    _x_axis(root, chart, x)
    for name, value in chart.limits.items():
        if value <= y.high:
            draw(root, "line", "limit", x1=x.start, x2=x.end, y1=y(value), y2=y(value))
            write(root, x.start + 4, y(value) - 4, name, "faint")
    if chart.ideal:
        _path(root, "ideal", [(x(a), y(b)) for a, b in chart.ideal if b <= y.high * 1.001])
    _failures(root, chart, x)
    for number, line in enumerate(chart.lines):
        _line(root, number, line, x, y, alone=len(chart.lines) == 1)
    _labels(root, chart, x, y)
    return root


def _scales(chart: LineChart) -> tuple[Scale, Scale]:
    highest = max((dot.high for line in chart.lines for dot in line.dots if dot.y is not None), default=1.0)
    highest = max(highest, *(b for _, b in chart.ideal)) if chart.ideal else highest
    near = [value for value in chart.limits.values() if value <= 1.6 * highest]
    ticks = _ticks(chart, max([highest, *near]))
    left = 12 + max(width_of(shown(tick)) for tick in ticks)
    named = len(chart.lines) > 1
    longest = max((width_of(line.label) for line in chart.lines), default=0)
    last = chart.ticks[max(chart.ticks)]
    right = max(_RIGHT + (min(_LABEL_ROOM, longest + 24) if named else 8), width_of(last) / 2 + 2)
    xs = [dot.x for line in chart.lines for dot in line.dots]
    inset = 0 if chart.x_from_zero else 14
    low = 0.0 if chart.x_from_zero else min(xs)
    x = Scale(low, max(xs), left + inset, WIDTH - right, chart.x_kind)
    return x, Scale(ticks[0], ticks[-1], _BOTTOM, _TOP, chart.y_kind)


def _ticks(chart: LineChart, highest: float) -> list[float]:
    if chart.y_kind == "linear":
        return round_ticks(highest)
    known = [dot.y for line in chart.lines for dot in line.dots if dot.y]
    return log_ticks(min([*known, *(b for _, b in chart.ideal)], default=1.0), highest)


def _y_axis(root: Element, chart: LineChart, y: Scale, end: float) -> None:
    ticks = _ticks(chart, y.high)
    left = 12 + max(width_of(shown(tick)) for tick in ticks)
    write(root, 2, 14, chart.y_label, "axis-name")
    for tick in ticks:
        draw(root, "line", "axis" if tick == y.low else "grid", x1=left, x2=end + 6, y1=y(tick), y2=y(tick))
        write(root, left - 5, y(tick) + FONT * 0.35, shown(tick), "tick", "end")


def _x_axis(root: Element, chart: LineChart, x: Scale) -> None:
    """Draw the tick labels, on two rows where they would overlap."""
    rows = [float("-inf")] * 2
    lowest = 0
    for value, name in sorted(chart.ticks.items()):
        half = width_of(name) / 2 + 3
        free = [row for row, taken in enumerate(rows) if x(value) - half >= taken]
        draw(root, "line", "axis", x1=x(value), x2=x(value), y1=_BOTTOM, y2=_BOTTOM + 4)
        if free:
            row = free[0]
            rows[row], lowest = x(value) + half, max(lowest, row)
            write(root, x(value), _BOTTOM + 16 + row * (LINE - 1), name, "tick", "middle")
    middle = (x.start + x.end) / 2
    write(root, middle, _BOTTOM + 33 + lowest * (LINE - 3), chart.x_label, "axis-name", "middle")


def _path(root: Element, kind: str, places: Sequence[tuple[float, float]]) -> None:
    if len(places) > 1:
        draw(root, "path", kind, d="M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in places))


def _line(root: Element, number: int, line: Line, x: Scale, y: Scale, *, alone: bool) -> None:
    color = f"c{number % NUM_COLORS}"
    known = [(dot, dot.y) for dot in line.dots if dot.y is not None]
    _path(root, f"line {color}", [(x(dot.x), y(value)) for dot, value in known])
    for dot, value in known:
        whisker(root, color, x(dot.x), y(dot.low), y(dot.high))
        shape = mark(root, number, x(dot.x), y(value))
        hint(shape, f"{line.label}: {figure(value)} ({figure(dot.low)} to {figure(dot.high)})")
    if alone:
        _values(root, known, x, y)


def _values(root: Element, known: Sequence[tuple[Dot, float]], x: Scale, y: Scale) -> None:
    """Write values above the points, from the last one, where there is room."""
    taken = [(float("inf"), 0.0)]
    for dot, value in reversed(known):
        text, at, height = figure(value), x(dot.x), y(dot.high) - 8
        half = width_of(text) / 2 + 3
        if all(at + half < left or abs(height - level) > LINE for left, level in taken):
            write(root, at, height, text, "value", "middle")
            taken.append((at - half, height))


def _failures(root: Element, chart: LineChart, x: Scale) -> None:
    stacked: dict[float, int] = {}
    for number, line in enumerate(chart.lines):
        for dot in line.dots:
            if dot.y is None:
                level = stacked[dot.x] = stacked.get(dot.x, -1) + 1
                at = _BOTTOM - 9 - 14 * level
                hint(cross(root, x(dot.x), at), f"{line.label}: {dot.failure}")
                text = dot.failure if len(chart.lines) == 1 else f"{dot.failure} {number + 1}"
                write(root, x(dot.x) - 8, at + 4, text, "bad-text", "end")


def _labels(root: Element, chart: LineChart, x: Scale, y: Scale) -> None:
    if chart.ideal:
        a, b = chart.ideal[-1]
        write(root, x(a), y(b) - 6, chart.ideal_label, "faint", "end")
    if len(chart.lines) < 2:
        return
    ends = [next((dot for dot in reversed(line.dots) if dot.y is not None), None) for line in chart.lines]
    texts = [wrapped(_named(chart, number), WIDTH - x.end - 12, most=3) for number in range(len(chart.lines))]
    wanted = [y(end.y) if end and end.y is not None else _BOTTOM for end in ends]
    places = apart(wanted, [LINE * len(lines) + 3 for lines in texts], _TOP - 8, _BOTTOM + 40)
    for number, (end, lines, place) in enumerate(zip(ends, texts, places, strict=True)):
        if end and end.y is not None:
            start, height = x(end.x) + 6, y(end.y)
            draw(root, "path", "leader", d=f"M{start:.1f},{height:.1f}L{x.end + 8:.1f},{place:.1f}")
        write_lines(root, x.end + 11, place, lines, f"label c{number % NUM_COLORS}", "start")


def _named(chart: LineChart, number: int) -> str:
    """Label of a line, numbered if crosses must be distinguishable."""
    label = chart.lines[number].label
    failed = any(dot.y is None for line in chart.lines for dot in line.dots)
    return f"{number + 1} {label}" if failed else label
