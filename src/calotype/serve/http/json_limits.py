"""Parses JSON from clients; checks depth and number of parts before it builds any object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.serve.settings import ServeSettings

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escaped surrogate: the only way to write one, alone or as a pair, in text that is UTF-8."""
# Possessive quantifiers: a string of any length causes no backtracking.
_PART = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
VALUES_A_PART = 4
"""Commas allowed per other part: numbers are small, but each one takes time and memory too."""


def check_shape(data: bytes, settings: ServeSettings) -> None:
    """Reject data that is nested too deeply or has too many parts; does not check that it is JSON."""
    depth = count = commas = 0
    most_values = VALUES_A_PART * settings.most_json_parts
    for part in _PART.finditer(data):
        opening = data[part.start()]
        if opening in b",":
            commas += 1
            if commas > most_values:
                raise _refused(f"has more than {most_values} values; send fewer")
            continue
        count += 1
        if count > settings.most_json_parts:
            raise _refused(f"has more than {settings.most_json_parts} parts; send fewer")
        if opening in b"[{":
            depth += 1
            if depth > settings.deepest_json:
                raise _refused(f"is nested more than {settings.deepest_json} levels deep; send fewer levels")
        elif opening in b"]}":
            depth -= 1


def loads(data: bytes, settings: ServeSettings) -> Any:
    """Parse a JSON text."""
    check_shape(data, settings)
    try:
        # Decode as UTF-8 only, because `check_shape` reads UTF-8.
        values = json.loads(data.decode())
    # Broken UTF-8, broken JSON and an integer of thousands of digits all raise ValueError.
    except ValueError as error:
        raise _refused(f"is not valid JSON: {error}") from None
    if _ESCAPED_SURROGATE.search(data) and (problems := list(_lone_surrogates(values))):
        raise RequestError(problems)
    return values


def _lone_surrogates(values: Any, place: str = "") -> Iterator[Problem]:
    """Report strings with a lone surrogate: UTF-8 cannot encode them, so nothing could send or store them."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _lone_surrogates(name, place)
            yield from _lone_surrogates(value, f"{place}.{name}" if place else name)
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from _lone_surrogates(value, f"{place}.{index}")
    elif isinstance(values, str):
        try:
            values.encode()
        except UnicodeEncodeError as error:
            rule = f"holds half a character at position {error.start}; remove it"
            yield Problem(place or "body", rule, values)


def _refused(rule: str) -> RequestError:
    return RequestError([Problem("body", rule)])
