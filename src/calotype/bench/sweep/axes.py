"""Parses the axes of a sweep and enumerates all combinations of their values."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import product

from calotype.core.errors import Problem, RequestError
from calotype.spec.records.measurement import Setting

MAX_SWEEP = 10_000
_BETWEEN_AXES = re.compile(r"\s+(?=[\w.]+=)")
_BETWEEN_VALUES = re.compile(r"(?<!\\),")
_WORDS: dict[str, Setting] = {"true": True, "false": False, "none": None, "null": None}


def parse_axes(words: Iterable[str], texts: Container[str] = ()) -> dict[str, tuple[Setting, ...]]:
    """Parse `batch=1,2,4 size=512x512,768x768` to values by axis; `\\,` is a comma inside a value.

    Values of the axes in `texts` stay strings, even if they look like numbers.
    """
    axes: dict[str, tuple[Setting, ...]] = {}
    problems = []
    for word in (axis for several in words for axis in _BETWEEN_AXES.split(several.strip())):
        name, equals, text = word.partition("=")
        parts = (part.strip().replace("\\,", ",") for part in _BETWEEN_VALUES.split(text))
        values = tuple(part if name.strip() in texts else _value(part) for part in parts if part)
        if not equals or not name.strip() or not values:
            rule = f"{word!r} should be NAME=VALUE,VALUE,…, for instance batch=1,2,4"
            problems.append(Problem("--sweep", rule, word))
        elif name in axes:
            problems.append(Problem("--sweep", f"{name!r} is given twice; list its values in one axis", word))
        elif len(set(map(repr, values))) < len(values):
            problems.append(Problem("--sweep", f"{word!r} contains a value twice", word))
        else:
            axes[name.strip()] = values
    if problems:
        raise RequestError(problems)
    return axes


def combinations(
    points: Iterable[Mapping[str, Setting]], axes: Mapping[str, tuple[Setting, ...]]
) -> Iterator[dict[str, Setting]]:
    """Yield every point with every combination of the axes' values; the last axis changes fastest."""
    listed = list(points)
    total = len(listed)
    for values in axes.values():
        total *= len(values)
    if total > MAX_SWEEP:
        rule = f"{total} points exceed the limit of {MAX_SWEEP} per sweep; split the sweep"
        raise RequestError([Problem("--sweep", rule, total)])
    for point in listed:
        for values in product(*axes.values()):
            yield {**point, **dict(zip(axes, values, strict=True))}


def name_of(settings: Mapping[str, Setting]) -> str:
    """Name a point by its settings, as typed on the command line."""
    return " ".join(f"{name}={shown(value)}" for name, value in settings.items())


def typed(name: str, value: Setting) -> str:
    """Format an axis of one value so that `parse_axes` reads it."""
    text = repr(value) if isinstance(value, float) else shown(value)
    return f"{name}={text}".replace(",", "\\,")


def shown(value: Setting) -> str:
    """Format a value for a reader."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value(text: str) -> Setting:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
