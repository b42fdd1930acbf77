"""Draws horizontal bar charts from zero, with the name, value and spread of each bar."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from calotype.bench.report.plots.canvas import (
    LINE,
    WIDTH,
    canvas,
    draw,
    hint,
    width_of,
    wrapped,
    write,
    write_lines,
)
from calotype.bench.report.plots.scales import Scale, round_ticks, shown

_TOP, _NAMES, _ROW = 26, 164, 18


@dataclass(frozen=True)
class Bar:
    name: str
    value: float | None
    """None for a failed point."""
    text: str
    """Label at the end of the bar: the number, or the failure."""
    low: float | None = None
    high: float | None = None
    color: int = 0
    """Index of the color; -1 for a bar shown for comparison only."""


@dataclass(frozen=True)
class BarChart:
    title: str
    description: str
    x_label: str
    bars: tuple[Bar, ...]
    level: tuple[str, float] | None = None
    """A vertical line for comparison, with its name."""


def bar_chart(chart: BarChart) -> Element:
    names = [wrapped(bar.name, _NAMES - 10, most=4) for bar in chart.bars]
    heights = [max(_ROW, len(lines) * LINE) + 8 for lines in names]
    bottom = _TOP + sum(heights)
    root = canvas(bottom + 40, chart.title, chart.description)
    x = _scale(chart)
    for tick in round_ticks(x.high):
        draw(root, "line", "grid" if tick else "axis", x1=x(tick), x2=x(tick), y1=_TOP - 4, y2=bottom)
        write(root, x(tick), bottom + 14, shown(tick), "tick", "middle")
    write(root, (x.start + x.end) / 2, bottom + 31, chart.x_label, "axis-name", "middle")
    middles = [_TOP + sum(heights[:place]) + height / 2 for place, height in enumerate(heights)]
    ends = [_bar(root, bar, x, middle) for bar, middle in zip(chart.bars, middles, strict=True)]
    if chart.level:
        name, value = chart.level
        draw(root, "line", "limit", x1=x(value), x2=x(value), y1=_TOP - 8, y2=bottom)
        near_end = x(value) + width_of(name) > WIDTH
        write(root, x(value), _TOP - 12, name, "faint", "end" if near_end else "middle")
    # Last, so that no line goes through a number.
    for bar, lines, middle, end in zip(chart.bars, names, middles, ends, strict=True):
        write_lines(root, _NAMES - 6, middle, lines, "name", "end")
        write(root, end + 5, middle + 4, bar.text, "bad-text" if bar.value is None else "value")
    return root


def _scale(chart: BarChart) -> Scale:
    highest = max(max(bar.value or 0.0, bar.high or 0.0) for bar in chart.bars)
    highest = max(highest, chart.level[1]) if chart.level else highest
    room = max((width_of(bar.text) for bar in chart.bars if bar.value is not None), default=0) + 14
    return Scale(0.0, round_ticks(highest, 4)[-1], _NAMES, WIDTH - min(room, 110))


def _bar(root: Element, bar: Bar, x: Scale, middle: float) -> float:
    """Draw a bar and return where it ends, including its whisker."""
    if bar.value is None:
        return x.start
    kind = "bar other" if bar.color < 0 else f"bar c{bar.color}"
    end = x(bar.value)
    shape = draw(root, "rect", kind, x=x.start, y=middle - 8, width=max(1.0, end - x.start), height=16)
    hint(shape, f"{bar.name}: {bar.text}")
    if bar.low is not None and bar.high is not None and x(bar.high) - x(bar.low) > 1:
        low, high = x(bar.low), x(bar.high)
        d = f"M{low:.1f},{middle:.1f}H{high:.1f}M{low:.1f},{middle - 4:.1f}v8M{high:.1f},{middle - 4:.1f}v8"
        draw(root, "path", "bar-whisker", d=d)
        end = max(end, high)
    return end
