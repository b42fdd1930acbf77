"""Groups measurements that differ in one setting only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.references.units import SPEEDS, Measure, measures

_IGNORED = {"command", "num_workers"}
"""Settings that do not distinguish measurements of one source."""


def group_except(entries: Iterable[Entry], *free: str) -> list[list[Entry]]:
    """Group entries of one run that share every setting but `free`, in order.

    Runs on other days, machines and versions are kept apart because they differ in more than the settings.
    """
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.run, *_key(entry, free)), []).append(entry)
    return list(groups.values())


def group_across(entries: Iterable[Entry], *free: str) -> list[list[Entry]]:
    """Group over all our runs, for settings that one run cannot vary: the GPU and the number of GPUs."""
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_key(entry, free), []).append(entry)
    return list(groups.values())


def _key(entry: Entry, free: Iterable[str]) -> tuple[str, str]:
    # A source uses one checkpoint of each model; our records may use several.
    named = set() if entry.source == RECORDS else {"weights"}
    rest = entry.settings.model_dump(mode="json", exclude=_IGNORED | named | set(free))
    return entry.source, repr(rest)


def speed(entry: Entry) -> tuple[Measure, float] | None:
    """Return the first known speed, per GPU."""
    found = measures(entry)
    return next(((name, found[name]) for name in SPEEDS if name in found), None)


def with_speed(entries: Iterable[Entry]) -> list[tuple[Entry, float]]:
    """Return entries with a speed in the unit of the first one."""
    known = [(entry, found) for entry in entries if (found := speed(entry))]
    return [(entry, found[1]) for entry, found in known if found[0] == known[0][1][0]]


def subject(entry: Entry) -> str:
    """Name the GPUs of an entry, and the system if the source has several."""
    settings = entry.settings
    where = " × ".join(filter(None, (str(settings.num_gpus or ""), settings.gpu)))
    return ", ".join(filter(None, (where, settings.software if entry.source == RECORDS else None)))
