"""Drawings hold true numbers: places and lengths are measured in the SVG itself."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

import calotype.bench.report.plots
from calotype.bench.report.plots.bar_chart import Bar, BarChart, bar_chart
from calotype.bench.report.plots.canvas import NUM_COLORS
from calotype.bench.report.plots.line_chart import Dot, Line, LineChart, line_chart
from calotype.bench.report.plots.roofline import Roofline, roofline
from calotype.bench.report.plots.scales import apart, figure, powers, round_ticks
from calotype.bench.report.render_html import standalone_svg

STYLE = (Path(calotype.bench.report.plots.__file__).parent / "style.css").read_text("utf-8")


def chart(*lines: Line, **changes: Any) -> Element:
    ticks = {dot.x: f"{dot.x:g}" for line in lines for dot in line.dots}
    plain = LineChart("t", "d", "batch", "pictures/s", ticks, lines)
    return line_chart(replace(plain, **changes))


def attribute(element: Element, name: str) -> float:
    return float(element.attrib[name])


def test_bars_begin_at_zero_and_are_as_long_as_their_values() -> None:
    bars = (Bar("a", 10.0, "10"), Bar("b", 25.0, "25", 24.0, 26.0), Bar("c", None, "oom"))
    root = bar_chart(BarChart("t", "d", "s", bars))
    one, other = root.findall("rect")
    assert attribute(one, "x") == attribute(other, "x")
    assert attribute(other, "width") / attribute(one, "width") == pytest.approx(2.5, rel=1e-3)
    zero = next(tick for tick in root.findall("text[@class='tick']") if tick.text == "0")
    assert attribute(zero, "x") == pytest.approx(attribute(one, "x"))
    assert "oom" in [text.text for text in root.findall("text[@class='bad-text']")]


def test_a_level_lies_over_the_bars_and_under_their_numbers() -> None:
    bars = (Bar("a", 10.0, "10"), Bar("b", 25.0, "25"))
    parts = list(bar_chart(BarChart("t", "d", "s", bars, level=("ceiling", 12.0))))
    level = next(place for place, part in enumerate(parts) if part.get("class") == "limit")
    assert all(place < level for place, part in enumerate(parts) if part.tag == "rect")
    numbers = [place for place, part in enumerate(parts) if part.get("class") == "value"]
    assert len(numbers) == 2
    assert all(place > level for place in numbers)
    assert re.search(r"\.value {[^}]*paint-order: stroke", STYLE), "and no line goes through them"


def test_lines_lie_where_their_numbers_say() -> None:
    dots = tuple(Dot(x, y, y * 0.9, y * 1.1) for x, y in ((1, 10.0), (2, 20.0), (8, 40.0)))
    root = chart(Line("a", dots), x_kind="log")
    marks = root.findall("circle")
    ticks = {tick.text: attribute(tick, "y") - 12 * 0.35 for tick in root.findall("text[@text-anchor='end']")}
    height = {text: ticks["0"] - place for text, place in ticks.items()}
    for mark, (_, value) in zip(marks, ((1, 10.0), (2, 20.0), (8, 40.0)), strict=True):
        share = (ticks["0"] - attribute(mark, "cy")) / height["40"]
        assert share == pytest.approx(value / 40, abs=0.01)
    at = [attribute(mark, "cx") for mark in marks]
    assert (at[2] - at[0]) / (at[1] - at[0]) == pytest.approx(3, rel=1e-2), "three doublings"
    ends = re.findall(r"M[\d.]+,([\d.]+)V([\d.]+)", root.findall("path[@class='whisker c0']")[2].attrib["d"])
    low, high = ((ticks["0"] - float(place)) / height["40"] * 40 for place in ends[0])
    assert low == pytest.approx(36, abs=0.5)
    assert high == pytest.approx(44, abs=0.5)


def test_what_failed_is_a_cross_with_its_line_and_reason() -> None:
    good, bad = (
        Line("good", (Dot(1, 1.0, 1.0, 1.0), Dot(2, 2.0, 2.0, 2.0))),
        Line("bad", (Dot(1, 1.0, 1.0, 1.0), Dot(2, None, failure="oom"))),
    )
    root = chart(good, bad)
    [cross] = root.findall("path[@class='bad-mark']")
    assert cross.findtext("title") == "bad: oom"
    assert "oom 2" in [text.text for text in root.iter("text")]
    assert "2 bad" in [text.text for text in root.iter("text")]


def test_lines_are_named_at_their_ends_without_overlap() -> None:
    lines = [
        Line(f"line number {n}", (Dot(1, 1.0, 1, 1), Dot(2, 2.0 + n / 100, 2, 2))) for n in range(NUM_COLORS)
    ]
    root = chart(*lines)
    heights = sorted(attribute(text, "y") for text in root.iter("text") if "label" in text.attrib["class"])
    assert min(b - a for a, b in pairwise(heights)) >= 12


def test_a_roof_bends_where_memory_ends() -> None:
    root = roofline(Roofline("t", "d", 4000.0, {"matmul": 800.0}, {"ours": 400.0}))
    slope, flat = (path.attrib["d"] for path in root.findall("path[@class='roof']"))
    assert slope.split("L")[1] == flat.removeprefix("M").split("L")[0]
    reached = root.findall("path[@class='line c0']")[0].attrib["d"]
    assert float(reached.split(",")[1].split("L")[0]) > float(flat.split(",")[1].split("L")[0]), (
        "below the roof"
    )


@pytest.mark.parametrize("high", [0.003, 0.9, 1, 7, 99, 100, 101, 12345])
def test_ticks_are_round_and_reach_past_the_highest(high: float) -> None:
    ticks = round_ticks(high)
    assert ticks[0] == 0
    assert ticks[-1] >= high > ticks[-2]
    assert 2 <= len(ticks) <= 7
    assert re.fullmatch(r"[125]0*", f"{ticks[1]:.10g}".replace(".", "").lstrip("0"))


def test_powers_and_places() -> None:
    assert powers(0.5, 800) == [0.1, 1, 10, 100, 1000]
    moved = apart([10, 11, 50], [8, 8, 8], 0, 100)
    assert moved[1] - moved[0] >= 8
    assert moved[2] == 50
    assert [figure(value) for value in (1.0, 114.2, 0.5, 12345)] == ["1.00", "114", "0.500", "12,345"]


def test_a_drawing_of_its_own_is_xml_with_its_colours_and_escapes() -> None:
    root = chart(Line("<b>&", (Dot(1, 1.0, 1, 1), Dot(2, 2.0, 2, 2))), title="<script>")
    read = fromstring(standalone_svg(root))
    name = "{http://www.w3.org/2000/svg}"
    assert read.findtext(f"{name}title") == "<script>"
    assert "--c0" in (read.findtext(f"{name}style") or "")


def palettes() -> list[dict[str, str]]:
    return [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in STYLE.split("@media")][:3]


# Machado, Oliveira and Fernandes (2009), severity 1: what people without red, green or blue cones see.
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def seen(color: str, sight: str) -> tuple[float, float, float]:
    """In CIE L*a*b* at D65."""
    linear = [_linear(int(color[i : i + 2], 16) / 255) for i in (1, 3, 5)]
    r, g, b = (
        min(1.0, max(0.0, sum(m * v for m, v in zip(row, linear, strict=True)))) for row in SIGHTS[sight]
    )
    x, y, z = (
        0.4124 * r + 0.3576 * g + 0.1805 * b,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        0.0193 * r + 0.1192 * g + 0.9505 * b,
    )
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x / 0.9505, y, z / 1.089))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("palette", [0, 1, 2], ids=["light", "dark", "paper"])
def test_the_first_four_colours_differ_to_every_kind_of_sight(palette: int, sight: str) -> None:
    colors = [seen(palettes()[palette][f"c{n}"], sight) for n in range(4)]
    nearest = min(
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        for one, other in combinations(colors, 2)
    )
    assert nearest > 10
