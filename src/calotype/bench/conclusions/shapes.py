"""What batches give, what guidance costs, and what a picture takes outside its steps."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.conclusions.groups import alike_but, speed, subject, with_speed
from calotype.bench.conclusions.statement import Statement, doubts
from calotype.bench.references.entry import Entry
from calotype.bench.references.units import first, seconds


def shapes(entries: Sequence[Entry]) -> list[Statement]:
    plain = [entry for entry in entries if entry.outcome == "ok" and not entry.settings.switches]
    pictures = [entry for entry in plain if entry.settings.work == "inference"]
    batches = [*_batches(pictures, "batch"), *_batches(plain, "micro_batch", "global_batch")]
    return [*batches, *_guidance(pictures), *_outside(pictures)]


def _batches(entries: Sequence[Entry], axis: str, *also: str) -> list[Statement]:
    statements = []
    for group in alike_but(entries, axis, *also):
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
    """How far times at different guidance are apart, as a share of the shortest."""
    # A range is of several tries, the others of one.
    times = [(f.value, entry) for entry in group if (f := first(entry, "time")) and f.high is None]
    if len({entry.settings.cfg for _, entry in times}) < 3:
        return None
    low, high = min(value for value, _ in times), max(value for value, _ in times)
    return (high - low) / low, f"({high:g} - {low:g}) / {low:g} = {(high - low) / low:.4f}"


def _guidance(entries: Sequence[Entry]) -> list[Statement]:
    statements = []
    for group in alike_but(entries, "cfg"):
        spread = guidance_spread(group)
        if spread:
            statements.append(
                Statement(
                    topic="shapes",
                    source=group[0].source,
                    says=f"guidance between {min(e.settings.cfg or 0 for e in group):g} and "
                    f"{max(e.settings.cfg or 0 for e in group):g} moves the time by {spread[0]:.1%}",
                    value=spread[0],
                    unit="share",
                    arithmetic=spread[1],
                    inputs=tuple(entry.id for entry in group),
                    notes=doubts(group),
                )
            )
    return statements


def _outside(entries: Sequence[Entry]) -> list[Statement]:
    statements = []
    for entry in entries:
        whole, steps = first(entry, "time"), _steps(entry)
        if whole is None or steps is None:
            continue
        share = 1 - steps[0] / seconds(whole)
        statements.append(
            Statement(
                topic="shapes",
                source=entry.source,
                says=f"{entry.id}: {share:.1%} of the time is outside the steps",
                value=share,
                unit="share",
                arithmetic=f"({seconds(whole):.4g} - {steps[1]}) / {seconds(whole):.4g} = {share:.4f}",
                inputs=(entry.id,),
                notes=doubts((entry,)),
            )
        )
    return statements


def _steps(entry: Entry) -> tuple[float, str] | None:
    """The seconds all steps take, and how that comes."""
    one, rate, count = first(entry, "step_time"), first(entry, "step_rate"), entry.settings.steps
    if one and count:
        return count * seconds(one), f"{count} × {seconds(one):.4g}"
    iterations = next((figure.value for figure in entry.figures if figure.of == "iterations"), count)
    if rate and iterations:
        return iterations / rate.value, f"{iterations:g} / {rate.value:.4g}"
    return None
