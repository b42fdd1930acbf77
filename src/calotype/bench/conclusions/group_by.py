"""Which measurements differ in one thing only. Draws no conclusion."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.references.units import SPEEDS, Measure, measures

_NEVER = {"command", "num_workers"}
"""Settings that set no two measurements of one source apart."""


def group_except(entries: Iterable[Entry], *free: str) -> list[list[Entry]]:
    """Entries of one run that share every setting but `free`, in the order they come.

    Other days, machines and versions are other runs: between them more differs than the settings say.
    """
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.run, *_key(entry, free)), []).append(entry)
    return list(groups.values())


def group_across(entries: Iterable[Entry], *free: str) -> list[list[Entry]]:
    """The same over all runs of ours, for what cannot be in one: other GPUs, and more of them."""
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_key(entry, free), []).append(entry)
    return list(groups.values())


def _key(entry: Entry, free: Iterable[str]) -> tuple[str, str]:
    # A source has one checkpoint of each model; records of ours may be of any two.
    named = set() if entry.source == RECORDS else {"weights"}
    rest = entry.settings.model_dump(mode="json", exclude=_NEVER | named | set(free))
    return entry.source, repr(rest)


def speed(entry: Entry) -> tuple[Measure, float] | None:
    """The first speed there is, per GPU."""
    found = measures(entry)
    return next(((name, found[name]) for name in SPEEDS if name in found), None)


def with_speed(entries: Iterable[Entry]) -> list[tuple[Entry, float]]:
    """Entries that have a speed in the unit of the first."""
    known = [(entry, found) for entry in entries if (found := speed(entry))]
    return [(entry, found[1]) for entry, found in known if found[0] == known[0][1][0]]


def subject(entry: Entry) -> str:
    """Whose figure it is: the GPUs, and the system where a source has several."""
    settings = entry.settings
    where = " × ".join(filter(None, (str(settings.num_gpus or ""), settings.gpu)))
    return ", ".join(filter(None, (where, settings.software if entry.source == RECORDS else None)))
