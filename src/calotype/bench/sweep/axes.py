"""Axes as people type them, and all combinations of their values. Knows nothing of what they mean."""

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
    """`batch=1,2,4 size=512x512,768x768` as values by axis; `\\,` is a comma inside a value.

    Values of the axes that are `texts` stay as they are typed, however much they look like numbers.
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
            problems.append(Problem("--sweep", f"{name!r} is there twice; put its values together", word))
        elif len(set(map(repr, values))) < len(values):
            problems.append(Problem("--sweep", f"{word!r} names a value twice", word))
        else:
            axes[name.strip()] = values
    if problems:
        raise RequestError(problems)
    return axes


def combinations(
    points: Iterable[Mapping[str, Setting]], axes: Mapping[str, tuple[Setting, ...]]
) -> Iterator[dict[str, Setting]]:
    """Every point with every combination of the axes' values, the last axis changing fastest."""
    listed = list(points)
    total = len(listed)
    for values in axes.values():
        total *= len(values)
    if total > MAX_SWEEP:
        rule = f"{total} points are more than the {MAX_SWEEP} a sweep may have; split it"
        raise RequestError([Problem("--sweep", rule, total)])
    for point in listed:
        for values in product(*axes.values()):
            yield {**point, **dict(zip(axes, values, strict=True))}


def name_of(settings: Mapping[str, Setting]) -> str:
    """What people call a point: its settings as they would type them."""
    return " ".join(f"{name}={shown(value)}" for name, value in settings.items())


def typed(name: str, value: Setting) -> str:
    """An axis of one value, such that `parse_axes` reads it."""
    text = repr(value) if isinstance(value, float) else shown(value)
    return f"{name}={text}".replace(",", "\\,")


def shown(value: Setting) -> str:
    """A value as people write it."""
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
