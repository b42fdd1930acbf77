"""Finds emoji that are indistinguishable because a style draws them identically."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from calotype.bench.quality.dataset import Shown


def merge_identical(shown: Iterable[Shown]) -> dict[str, str]:
    """Map each emoji to its class: itself, or the first emoji with an identical image."""
    leader: dict[str, str] = {}
    first_with: dict[bytes, str] = {}
    for one in shown:
        leader.setdefault(one.base, one.base)
        other = first_with.setdefault(one.fingerprint, one.base)
        low, high = sorted((_end(leader, one.base), _end(leader, other)))
        leader[high] = low
    return {base: _end(leader, base) for base in sorted(leader)}


def groups(leaders: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of merged emoji, each with its class first."""
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
