"""Derives the gain of batching, the effect of the guidance scale, and the time outside the steps."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.conclusions.group_by import group_except, speed, subject, with_speed
from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.references.units import first, seconds


def shapes(entries: Sequence[Entry]) -> list[Statement]:
    plain = [entry for entry in entries if entry.outcome == "ok" and not entry.settings.switches]
    inference = [entry for entry in plain if entry.settings.work == "inference"]
    batches = [*_batches(inference, "batch"), *_batches(plain, "micro_batch", "global_batch")]
    return [*batches, *_guidance(inference), *_outside(inference)]


def _batches(entries: Sequence[Entry], axis: str, *also: str) -> list[Statement]:
    statements = []
    for group in group_except(entries, axis, *also):
        runs = [run for run in with_speed(group) if getattr(run[0].settings, axis)]
        if len({getattr(run[0].settings, axis) for run in runs}) < 2:
            continue
        least = min(runs, key=lambda run: (getattr(run[0].settings, axis), -run[1]))
        best = max(runs, key=lambda run: run[1])
        if best is least:
            continue
        ratio = best[1] / least[1]
        found = speed(best[0])
        sizes = [getattr(run[0].settings, axis) for run in (best, least)]
        statements.append(
            Statement(
                topic="shapes",
                source=best[0].source,
                says=f"{subject(best[0])} is fastest at batch {sizes[0]}: "
                f"{ratio:.2f}× the speed of batch {sizes[1]}",
                value=ratio,
                unit="×",
                arithmetic=f"{best[1]:.4g} / {least[1]:.4g} {found[0] if found else ''} = {ratio:.4f}",
                inputs=(best[0].id, least[0].id),
                notes=doubts((best[0], least[0])),
            )
        )
    return statements


def guidance_spread(group: Sequence[Entry]) -> tuple[float, str] | None:
    """Range of the times at different guidance scales, as a share of the shortest."""
    # A range covers several tries, the other times one.
    times = [(f.value, entry) for entry in group if (f := first(entry, "time")) and f.high is None]
    if len({entry.settings.cfg for _, entry in times}) < 3:
        return None
    low, high = min(value for value, _ in times), max(value for value, _ in times)
    return (high - low) / low, f"({high:.4g} - {low:.4g}) / {low:.4g} = {(high - low) / low:.4f}"


def _guidance(entries: Sequence[Entry]) -> list[Statement]:
    """Compare guided runs only: at guidance 1 a step is half the work."""
    guided = [entry for entry in entries if entry.settings.cfg != 1]
    return [
        _guidance_of(group, *spread)
        for group in group_except(guided, "cfg")
        if (spread := guidance_spread(group))
    ]


def _guidance_of(group: Sequence[Entry], spread: float, arithmetic: str) -> Statement:
    ours = f" on {subject(group[0])}" if group[0].source == RECORDS else ""
    swing = max(entry.swing for entry in group)
    within = [f"within the spread of the runs: ±{swing:.1%}"] if spread <= 2 * swing else []
    return Statement(
        topic="shapes",
        source=group[0].source,
        says=f"guidance between {min(e.settings.cfg or 0 for e in group):g} and "
        f"{max(e.settings.cfg or 0 for e in group):g} changes the time by {spread:.1%}{ours}",
        value=spread,
        unit="share",
        arithmetic=arithmetic,
        inputs=tuple(entry.id for entry in group),
        notes=(*within, *doubts(group)),
    )


def _outside(entries: Sequence[Entry]) -> list[Statement]:
    """Return one statement for each published row, and the lowest and highest share for each of our runs."""
    shares_of = [(entry, share) for entry in entries if (share := _share_outside(entry))]
    statements = [_outside_of([one]) for one in shares_of if one[0].source != RECORDS]
    shares = {entry.id: share for entry, share in shares_of}
    own = [entry for entry, _ in shares_of if entry.source == RECORDS]
    for group in group_except(own, "steps", "batch", "width", "height", "cfg"):
        ordered = sorted(((entry, shares[entry.id]) for entry in group), key=lambda one: one[1][0])
        statements.append(_outside_of(ordered[:1] + ordered[1:][-1:]))
    return statements


def _outside_of(shares: Sequence[tuple[Entry, tuple[float, str]]]) -> Statement:
    entries = [entry for entry, _ in shares]
    says = [f"{entry.id}: {share:.1%}" for entry, (share, _) in shares]
    ours = f" on {subject(entries[0])}" if entries[0].source == RECORDS else ""
    return Statement(
        topic="shapes",
        source=entries[0].source,
        says=f"{' to '.join(says)} of the time is outside the steps{ours}",
        value=shares[-1][1][0],
        unit="share",
        arithmetic="; ".join(arithmetic for _, (_, arithmetic) in shares),
        inputs=tuple(entry.id for entry in entries),
        notes=doubts(entries),
    )


def _share_outside(entry: Entry) -> tuple[float, str] | None:
    """Share of the time outside the steps.

    None if unknown, or if the batch with step times was slower than the timed batches.
    """
    whole, steps = first(entry, "time"), _steps(entry)
    if whole is None or steps is None:
        return None
    share = 1 - steps[0] / seconds(whole)
    if entry.source == RECORDS and share < 0:
        return None
    return share, f"({seconds(whole):.4g} - {steps[1]}) / {seconds(whole):.4g} = {share:.4f}"


def _steps(entry: Entry) -> tuple[float, str] | None:
    """Seconds of all steps, with the arithmetic."""
    one, rate, count = first(entry, "step_time"), first(entry, "step_rate"), entry.settings.steps
    if one and count:
        return count * seconds(one), f"{count} × {seconds(one):.4g}"
    iterations = next((figure.value for figure in entry.figures if figure.of == "iterations"), count)
    if rate and iterations:
        return iterations / rate.value, f"{iterations:g} / {rate.value:.4g}"
    return None
