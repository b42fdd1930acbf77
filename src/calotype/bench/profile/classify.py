"""What a kernel's or an operation's name says of it: its group, and a sentence for people.

The tables are `device_kinds` and `host_kinds`. Knows nothing of times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from calotype.bench.profile.cpu_op_patterns import HOST_KINDS
from calotype.bench.profile.gpu_kernel_patterns import DEVICE_KINDS
from calotype.spec.records.profile import Group

_MAX_NAME_LENGTH = 96
_UNKNOWN = "nothing is known of this name"


class Kind(NamedTuple):
    """What is known of a name."""

    group: Group
    what: str


@cache
def device_kind(name: str) -> Kind:
    """Of a kernel, or of a copy, as the device's trace names it."""
    return _first(DEVICE_KINDS, name)


@cache
def host_kind(name: str) -> Kind:
    """Of one of torch's operations on the host."""
    return _first(HOST_KINDS, name)


def _first(kinds: Sequence[tuple[str, Group, str]], name: str) -> Kind:
    found = next((kind for kind in kinds if re.search(kind[0], name)), None)
    return Kind(found[1], found[2]) if found else Kind("other", _UNKNOWN)


def short_name(name: str) -> str:
    """A name that fits on a line: C++'s decoration and what is in its brackets shortened."""
    text = name.removeprefix("void ")
    for long in ("(anonymous namespace)::", "at::native::", "c10::", "cutlass::"):
        text = text.replace(long, "")
    if "<" in text:
        # What follows the template's arguments are the types of the function's: never news.
        text = text[: text.rindex(">") + 1] if ">" in text else text
    return text if len(text) <= _MAX_NAME_LENGTH else f"{text[: _MAX_NAME_LENGTH - 1]}…"
