"""JSON from strangers: its depth and number of parts are known before anything is built of it.

Knows nothing of what it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.serve.settings import ServeSettings

_MAY_HALVE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The only way into a text that is UTF-8 for half a character, or for both halves of one."""
# Possessive, so that a string of any length leaves nothing to go back to.
_PART = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
VALUES_A_PART = 4
"""So many times as many commas as other parts: numbers are small, but each takes its time and memory too."""


def check_shape(data: bytes, settings: ServeSettings) -> None:
    """Refuse what is nested too deeply or made of too many parts; says nothing of whether it is JSON."""
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
                raise _refused(f"is nested more than {settings.deepest_json} deep; send it flatter")
        elif opening in b"]}":
            depth -= 1


def loads(data: bytes, settings: ServeSettings) -> Any:
    """The values of a JSON text."""
    check_shape(data, settings)
    try:
        # As UTF-8 and nothing else: the shape was read that way.
        values = json.loads(data.decode())
    # An integer of some thousand digits is a ValueError, as are broken UTF-8 and broken JSON.
    except ValueError as error:
        raise _refused(f"is not JSON that can be read: {error}") from None
    if _MAY_HALVE.search(data) and (problems := list(_halves(values))):
        raise RequestError(problems)
    return values


def _halves(values: Any, place: str = "") -> Iterator[Problem]:
    """Texts that no wire and no file can carry, wherever they are: nothing they are part of could go on."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _halves(name, place)
            yield from _halves(value, f"{place}.{name}" if place else name)
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from _halves(value, f"{place}.{index}")
    elif isinstance(values, str):
        try:
            values.encode()
        except UnicodeEncodeError as error:
            rule = f"holds half a character at position {error.start}; remove it"
            yield Problem(place or "body", rule, values)


def _refused(rule: str) -> RequestError:
    return RequestError([Problem("body", rule)])
