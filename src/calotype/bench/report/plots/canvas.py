"""Creates SVG elements and lays out text; the XML serializer escapes the text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement

WIDTH = 440
"""Width of every drawing, so that text has the same size in all of them and is readable on a phone."""
FONT = 12
LINE = 14
NUM_COLORS = 6
_CHARACTER = 0.62 * FONT


def canvas(height: float, title: str, description: str) -> Element:
    """Create an empty drawing with a title and a description for screen readers."""
    root = Element("svg", {"class": "plot", "viewBox": f"0 0 {WIDTH} {height:g}", "role": "img"})
    SubElement(root, "title").text = title
    SubElement(root, "desc").text = description
    return root


def draw(parent: Element, tag: str, kind: str = "", **attributes: object) -> Element:
    """Add a shape; `kind` is its CSS class."""
    named = {key.replace("_", "-"): _plain(value) for key, value in attributes.items()}
    return SubElement(parent, tag, ({"class": kind} if kind else {}) | named)


def write(parent: Element, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Element:
    element = draw(parent, "text", kind, x=x, y=y, text_anchor=anchor)
    element.text = text
    return element


def write_lines(
    parent: Element, x: float, middle: float, lines: Sequence[str], kind: str, anchor: str
) -> None:
    """Write lines of text, vertically centered at `middle`."""
    top = middle - (len(lines) - 1) * LINE / 2 + FONT * 0.35
    for number, line in enumerate(lines):
        write(parent, x, top + number * LINE, line, kind, anchor)


def hint(element: Element, text: str) -> None:
    """Add a tooltip."""
    SubElement(element, "title").text = text


def width_of(text: str) -> float:
    """Estimate the width of a text; fonts differ."""
    return len(text) * _CHARACTER


def wrapped(text: str, width: float, most: int = 2) -> list[str]:
    """Wrap a text to at most `most` lines; an ellipsis replaces the rest."""
    room = max(4, int(width / _CHARACTER))
    return textwrap.wrap(text, room, max_lines=most, placeholder=" …", break_long_words=True) or [""]


def mark(parent: Element, number: int, x: float, y: float) -> Element:
    """Add a marker with a distinct shape for each color, for readers who do not see colors."""
    kind, size = f"mark c{number % NUM_COLORS}", 4.2
    if number % NUM_COLORS == 0:
        return draw(parent, "circle", kind, cx=x, cy=y, r=size)
    corners, turn = ((4, 45), (3, -90), (4, 0), (3, 90), (6, 0))[number % NUM_COLORS - 1]
    reach = size * (1.45 if corners == 3 else 1.3)
    angles = [math.radians(turn + 360 * corner / corners) for corner in range(corners)]
    points = " ".join(f"{x + reach * math.cos(a):.1f},{y + reach * math.sin(a):.1f}" for a in angles)
    return draw(parent, "polygon", kind, points=points)


def cross(parent: Element, x: float, y: float) -> Element:
    """Add the marker of a failed point."""
    return draw(parent, "path", "bad-mark", d=f"M{x - 4:.1f},{y - 4:.1f}l8,8m0,-8l-8,8")


def whisker(parent: Element, kind: str, x: float, low: float, high: float) -> None:
    """Draw a vertical whisker over a spread."""
    if abs(low - high) > 0.5:
        d = f"M{x:.1f},{low:.1f}V{high:.1f}M{x - 3:.1f},{low:.1f}h6M{x - 3:.1f},{high:.1f}h6"
        draw(parent, "path", f"whisker {kind}", d=d)


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
