"""Which emoji nobody could tell apart, because a style draws them alike to the pixel. Decodes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from calotype.bench.quality.dataset import Shown


def merge_identical(shown: Iterable[Shown]) -> dict[str, str]:
    """For each emoji the one it is judged as: itself, or the first of those it shares a picture with."""
    leader: dict[str, str] = {}
    first_with: dict[bytes, str] = {}
    for one in shown:
        leader.setdefault(one.base, one.base)
        other = first_with.setdefault(one.fingerprint, one.base)
        low, high = sorted((_end(leader, one.base), _end(leader, other)))
        leader[high] = low
    return {base: _end(leader, base) for base in sorted(leader)}


def groups(leaders: Mapping[str, str]) -> list[list[str]]:
    """The emoji that were merged, each group led by the one all are judged as."""
    found: dict[str, list[str]] = defaultdict(list)
    for base, leader in sorted(leaders.items()):
        found[leader].append(base)
    return [
        [leader, *(base for base in all_ if base != leader)]
        for leader, all_ in found.items()
        if len(all_) > 1
    ]


def _end(leader: Mapping[str, str], base: str) -> str:
    while leader[base] != base:
        base = leader[base]
    return base
