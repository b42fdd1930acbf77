"""JSON from strangers: its depth and number of parts are known before anything is built of it.

Knows nothing of what it says.
"""

from __future__ import annotations

import json
import re
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.serve.settings import ServeSettings

# Possessive, so that a string of any length leaves nothing to go back to.
_PART = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def check_shape(data: bytes, settings: ServeSettings) -> None:
    """Refuse what is nested too deeply or made of too many parts; says nothing of whether it is JSON."""
    depth = 0
    for count, part in enumerate(_PART.finditer(data)):
        if count >= settings.most_json_parts:
            raise _refused(f"has more than {settings.most_json_parts} parts; send fewer")
        opening = data[part.start()]
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
        return json.loads(data.decode())
    # An integer of some thousand digits is a ValueError, as are broken UTF-8 and broken JSON.
    except ValueError as error:
        raise _refused(f"is not JSON that can be read: {error}") from None


def _refused(rule: str) -> RequestError:
    return RequestError([Problem("body", rule)])
