"""Describes how the settings of two measurements differ, and how far apart they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log2

from calotype.spec.published_results import Settings

_UNSAID_SHARE = 0.5
"""Weight of an unknown setting, less than that of a known difference."""
_DOUBLINGS = 4
"""Numbers that differ by this many doublings or more count in full, closer ones in part."""
_SIZE = re.compile(r"(\d+)\s*GB?\b")
_FORM = re.compile(r"PCIE|SXM|NVL\b")
_FAMILY = re.compile(r"\b(?:[A-Z]{1,3}|[RG]TX )\d{1,4}[A-Z]?\b")
_SLICE = " MIG "


@dataclass(frozen=True)
class Difference:
    """One setting that differs between two measurements."""

    what: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.what}: {self.ours} vs. {self.theirs}"


@dataclass(frozen=True)
class Differences:
    """All differing settings of two measurements, and settings that only one of them states."""

    found: tuple[Difference, ...]
    unsaid: tuple[str, ...]
    """Settings that only one of the two states, so that a difference is unknown."""
    distance: float
    """Weighted distance, to show the most similar first."""


def differences(ours: Settings, theirs: Settings) -> Differences:
    """Compare two settings.

    The system is the subject of a comparison, so it is no difference; its switches are one within a system.
    """
    found, unsaid, distance = [], [], 0.0
    for aspect in _ASPECTS:
        mine, other = aspect.shown(ours), aspect.shown(theirs)
        if (mine is None) != (other is None):
            unsaid.append(aspect.what)
            distance += _UNSAID_SHARE * aspect.weight
        elif mine is not None and other is not None and not aspect.same(mine, other):
            found.append(Difference(aspect.what, mine, other))
            distance += aspect.weight * _value_distance(mine, other)
    if ours.software == theirs.software and ours.switches != theirs.switches:
        found.append(Difference("switches", shown_switches(ours), shown_switches(theirs)))
        distance += 1.0
    return Differences(tuple(found), tuple(unsaid), distance)


def same_gpu(one: str, other: str) -> bool:
    """Whether two names can mean the same GPU.

    Both must name its family, and memory size and form factor must agree where both state them. A CPU never
    matches, and a MIG slice differs from the whole GPU.
    """
    one, other = one.upper().replace("-", " "), other.upper().replace("-", " ")
    if one == other:
        return True
    (one, _, part), (other, _, its_part) = one.partition(_SLICE), other.partition(_SLICE)
    if part != its_part or ("EMULATED" in one) != ("EMULATED" in other):
        return False
    if not all(map(_is_of_known_family, (one, other))):
        return False
    return all(_agree(pattern, one, other) for pattern in (_FAMILY, _SIZE, _FORM))


def _is_of_known_family(name: str) -> bool:
    return not name.startswith("CPU") and _FAMILY.search(name) is not None


def shown_switches(settings: Settings) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(settings.switches.items())) or "none"


def _agree(pattern: re.Pattern[str], one: str, other: str) -> bool:
    first, second = pattern.search(one), pattern.search(other)
    if first is None or second is None:
        return True
    return first[pattern.groups] == second[pattern.groups]


def _value_distance(one: str, other: str) -> float:
    """Distance from 0 to 1: in full for words, by doublings for numbers."""
    if not (one.isdigit() and other.isdigit()):
        return 1.0
    return min(1.0, abs(log2(int(one) / int(other))) / _DOUBLINGS)


def _plain(name: str) -> Callable[[Settings], str | None]:
    def shown(settings: Settings) -> str | None:
        value = getattr(settings, name)
        return None if value is None else str(value)

    return shown


def _size(settings: Settings) -> str | None:
    return f"{settings.width}×{settings.height}" if settings.width and settings.height else None


def _loop(settings: Settings) -> str | None:
    return None if settings.loop is None else " + ".join(sorted(settings.loop))


def _ema(settings: Settings) -> str | None:
    return None if settings.ema is None else "on" if settings.ema else "off"


def _equal(one: str, other: str) -> bool:
    return one == other


@dataclass(frozen=True)
class _Aspect:
    what: str
    shown: Callable[[Settings], str | None]
    weight: float = 1.0
    same: Callable[[str, str], bool] = _equal


_ASPECTS = (
    _Aspect("model", _plain("model"), 1.0),
    _Aspect("what is trained", _plain("trains"), 3.0),
    _Aspect("GPU", _plain("gpu"), 2.0, same_gpu),
    _Aspect("number of GPUs", _plain("num_gpus")),
    _Aspect("nodes", _plain("num_nodes"), 0.5),
    _Aspect("inside the timed loop", _loop, 3.0),
    _Aspect("resolution", _size, 3.0),
    _Aspect("precision", _plain("precision")),
    _Aspect("micro-batch", _plain("micro_batch")),
    # The micro-batch and the GPUs determine it, except for gradient accumulation.
    _Aspect("global batch", _plain("global_batch"), 0.25),
    _Aspect("batch", _plain("batch"), 2.0),
    _Aspect("steps", _plain("steps"), 3.0),
    _Aspect("sampler", _plain("sampler"), 0.5),
    _Aspect("guidance", _plain("cfg"), 0.5),
    _Aspect("EMA", _ema, 0.5),
    _Aspect("data", _plain("data")),
)
_NAMES = {
    "gpus_per_node": "number of GPUs",
    "num_nodes": "nodes",
    "loop": "inside the timed loop",
    "width": "resolution",
    "height": "resolution",
    "micro_batch": "micro-batch",
    "global_batch": "global batch",
    "cfg": "guidance",
    "ema": "EMA",
    "trains": "what is trained",
}


def in_words(settings: Iterable[str]) -> list[str]:
    """Return the readable names of settings, without repetition."""
    return list(dict.fromkeys(_NAMES.get(name, name) for name in sorted(settings)))
