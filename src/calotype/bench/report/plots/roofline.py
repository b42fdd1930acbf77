"""Draws a roofline: a device's peak rate by arithmetic intensity, and the rates reached.

A reached rate is a horizontal line rather than a dot because the bytes were not counted: the work lies
somewhere on it, to the right of the slanted roof.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from calotype.bench.report.plots.canvas import FONT, LINE, WIDTH, canvas, draw, hint, width_of, wrapped, write
from calotype.bench.report.plots.canvas import write_lines as lines_of_text
from calotype.bench.report.plots.scales import Scale, apart, powers, shown

HEIGHT, _TOP, _BOTTOM, _LABELS = 310, 30, 262, 140


@dataclass(frozen=True)
class Roofline:
    title: str
    description: str
    copy_gb_s: float
    roofs: dict[str, float]
    """TFLOP/s by name."""
    reached: dict[str, float]
    """TFLOP/s by name."""


def roofline(chart: Roofline) -> Element:
    root = canvas(HEIGHT, chart.title, chart.description)
    tera_bytes = chart.copy_gb_s / 1000
    top, least = max(chart.roofs.values()), min([*chart.reached.values(), *chart.roofs.values()])
    ys, xs = powers(least, top), powers(least / tera_bytes, 8 * top / tera_bytes)
    left = 12 + max(width_of(shown(tick)) for tick in ys)
    x = Scale(xs[0], xs[-1], left, WIDTH - _LABELS, "log")
    y = Scale(ys[0], ys[-1], _BOTTOM, _TOP, "log")
    _axes(root, x, y, xs, ys)
    slope_from = max(xs[0], ys[0] / tera_bytes)
    _segment(
        root,
        "roof",
        (x(slope_from), y(slope_from * tera_bytes)),
        (x(top / tera_bytes), y(top)),
    )
    # Above the roof, where no reached rate can lie.
    write(root, x.start + 6, y(top) - 8, f"slope: copy {tera_bytes:.2g} TB/s", "faint")
    named: list[tuple[str, float, str]] = []
    for name, value in chart.roofs.items():
        _segment(root, "roof", (x(value / tera_bytes), y(value)), (x.end, y(value)))
        named.append((f"{shown(value)} {name}", value, "label"))
    for number, (name, value) in enumerate(chart.reached.items()):
        segment = _segment(root, f"line c{number}", (x(value / tera_bytes), y(value)), (x.end, y(value)))
        hint(segment, f"{name}: {shown(value)} TFLOP/s")
        named.append((f"{shown(value)} {name}", value, f"label c{number}"))
    texts = [wrapped(name, _LABELS - 14, most=3) for name, _, _ in named]
    gaps = [LINE * len(lines) + 2.0 for lines in texts]
    places = apart([y(value) for _, value, _ in named], gaps, 4, HEIGHT - 4)
    for (_, value, kind), lines, place in zip(named, texts, places, strict=True):
        draw(root, "path", "leader", d=f"M{x.end:.1f},{y(value):.1f}L{x.end + 8:.1f},{place:.1f}")
        lines_of_text(root, x.end + 11, place, lines, kind, "start")
    return root


def _axes(root: Element, x: Scale, y: Scale, xs: list[float], ys: list[float]) -> None:
    write(root, 2, 14, "TFLOP/s, both axes logarithmic", "axis-name")
    for tick in ys:
        draw(root, "line", "grid", x1=x.start, x2=x.end, y1=y(tick), y2=y(tick))
        write(root, x.start - 5, y(tick) + FONT * 0.35, shown(tick), "tick", "end")
    for tick in xs:
        draw(root, "line", "axis", x1=x(tick), x2=x(tick), y1=_BOTTOM, y2=_BOTTOM + 4)
        write(root, x(tick), _BOTTOM + 16, shown(tick), "tick", "middle")
    write(root, (x.start + x.end) / 2, _BOTTOM + 34, "arithmetic intensity, FLOP/B", "axis-name", "middle")


def _segment(root: Element, kind: str, one: tuple[float, float], other: tuple[float, float]) -> Element:
    return draw(root, "path", kind, d=f"M{one[0]:.1f},{one[1]:.1f}L{other[0]:.1f},{other[1]:.1f}")
