"""Classifies kernels and operations by name, into a group with a description.

The tables are `gpu_kernel_patterns` and `cpu_op_patterns`.
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
    """The group and the description of a name."""

    group: Group
    what: str


@cache
def device_kind(name: str) -> Kind:
    """Classify a kernel or a copy by its name in the device trace."""
    return _first(DEVICE_KINDS, name)


@cache
def host_kind(name: str) -> Kind:
    """Classify a torch operation on the host."""
    return _first(HOST_KINDS, name)


def _first(kinds: Sequence[tuple[str, Group, str]], name: str) -> Kind:
    found = next((kind for kind in kinds if re.search(kind[0], name)), None)
    return Kind(found[1], found[2]) if found else Kind("other", _UNKNOWN)


def short_name(name: str) -> str:
    """Shorten a C++ name to one line: drop namespaces and abbreviate template arguments."""
    text = name.removeprefix("void ")
    for long in ("(anonymous namespace)::", "at::native::", "c10::", "cutlass::"):
        text = text.replace(long, "")
    if "<" in text:
        # The function's parameter types follow the template arguments and add no information.
        text = text[: text.rindex(">") + 1] if ">" in text else text
    return text if len(text) <= _MAX_NAME_LENGTH else f"{text[: _MAX_NAME_LENGTH - 1]}…"
