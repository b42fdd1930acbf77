"""Derives the effect of one change within a source: a switch, EMA, or another system on the same work."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.conclusions.group_by import group_except, speed
from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.settings_diff import shown_switches
from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.references.units import measures
from calotype.spec.bench_job import OURS
from calotype.spec.published_results import Settings


def effects(entries: Sequence[Entry]) -> list[Statement]:
    """Compare every run with the run that lacks only the change."""
    statements = []
    # Kernel rates are not runs.
    runs = [entry for entry in entries if entry.settings.work != "kernel"]
    plain = {entry.source for entry in runs if speed(entry) and not entry.settings.switches}
    for free in (("switches", "ema", "precision"), ("software",), ("loop",)):
        for group in group_except(runs, *free):
            base = min(group, key=_plainness)
            others = [entry for entry in group if _names(entry.settings) != _names(base.settings)]
            statements += [_effect(entry, base) for entry in others if speed(base) and _tried(entry)]
            if _is_alone(group, plain) and "switches" in free:
                statements.append(_alone(base))
    return statements


def _tried(entry: Entry) -> bool:
    return entry.outcome != "not_given"


def _is_alone(group: list[Entry], plain: set[str]) -> bool:
    """Whether the source has runs without the change, but none at these settings."""
    [entry, *others] = group
    return not others and bool(entry.settings.switches and speed(entry)) and entry.source in plain


def _alone(entry: Entry) -> Statement:
    settings = entry.settings
    return Statement(
        topic="one thing changed",
        source=entry.source,
        says=f"{shown_switches(settings)} on {settings.gpu}: no run without it has the same settings",
        value=None,
        unit="×",
        arithmetic="",
        inputs=(entry.id,),
        notes=doubts((entry,)),
    )


def _plainness(entry: Entry) -> tuple[bool, int, bool, int, int]:
    settings = entry.settings
    changes = len(settings.switches), bool(settings.ema), -len(settings.loop or ())
    return speed(entry) is None, *changes, _rank(entry)


def _rank(entry: Entry) -> int:
    """Rank peers first, then our baseline, then our other presets; the lowest rank is the base."""
    software = entry.settings.software or ""
    if entry.source != RECORDS or not software.startswith(OURS):
        return 0
    return 1 if software in (OURS, f"{OURS} baseline") else 2


def _names(settings: Settings) -> tuple[object, ...]:
    switches = tuple(settings.switches.items())
    return settings.software, settings.precision, bool(settings.ema), settings.loop, switches


def changed(settings: Settings, base: Settings) -> str:
    """Describe the settings that differ from the base."""
    parts = [f"{key}={value}" for key, value in settings.switches.items() if base.switches.get(key) != value]
    if settings.software != base.software:
        parts.append(f"{settings.software} instead of {base.software}")
    if (
        None not in (settings.ema, base.ema)
        and settings.ema != base.ema
        and not any("ema" in part for part in parts)
    ):
        parts.append("EMA" if settings.ema else "no EMA")
    if settings.precision != base.precision:
        parts.append(f"{settings.precision} instead of {base.precision}")
    if settings.loop != base.loop:
        parts.append(f"only {' + '.join(settings.loop or ())} in the timed loop")
    return ", ".join(parts)


def _shape(settings: Settings) -> str:
    batch, steps = settings.micro_batch or settings.batch, settings.steps
    parts = (
        f"batch {batch}" if batch else "",
        f"{settings.width}×{settings.height}" if settings.work == "inference" and settings.width else "",
        f"{steps} step{'s' * (steps > 1)}" if steps else "",
    )
    return ", ".join(filter(None, parts))


def _effect(entry: Entry, base: Entry) -> Statement:
    ours, theirs = speed(entry), speed(base)
    assert theirs is not None
    what = f"{changed(entry.settings, base.settings)} on {base.settings.gpu}"
    if shape := _shape(base.settings):
        what += f" at {shape}"
    ratio = ours[1] / theirs[1] if ours and ours[0] == theirs[0] else None
    return Statement(
        topic="one thing changed",
        source=entry.source,
        says=f"{what}: {entry.outcome}" if ratio is None else f"{what}: {ratio:.3f}× the speed",
        value=ratio,
        unit="×",
        arithmetic=f"{ours[1]:.4g} / {theirs[1]:.4g} {theirs[0]} = {ratio:.4f}" if ours and ratio else "",
        inputs=(entry.id, base.id),
        notes=(*_spread(ratio, entry, base), *_memory(entry, base), *doubts((entry, base))),
    )


def _spread(ratio: float | None, entry: Entry, base: Entry) -> list[str]:
    if ratio is None or abs(ratio - 1) > entry.swing + base.swing or not entry.swing + base.swing:
        return []
    return [f"within the spread of the runs: ±{entry.swing:.1%} and ±{base.swing:.1%}"]


def _memory(entry: Entry, base: Entry) -> list[str]:
    more, less = measures(entry).get("GiB"), measures(base).get("GiB")
    if more is None or less is None:
        return []
    return [f"memory {more:.2f} - {less:.2f} = {more - less:+.2f} GiB"]
