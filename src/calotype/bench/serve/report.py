"""Reports a run as a table, as sentences and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from calotype.bench.serve.run import Phase
from calotype.spec.bench_job import OURS
from calotype.spec.records.measurement import Measurement

IN_TIME = "in time"
_P95_AT = "p95_over_solo_median_at "
_REACHED_AT = "throughput_over_load_at "
COLUMNS = ("", "requests", "errors", "per s", IN_TIME, "p50 ms", "p95 ms", "p99 ms")


def table_of(phases: Sequence[Phase]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and a row for each phase; goodput only if there is a latency target."""
    rows = _rows(phases)
    wanted = [
        place
        for place, heading in enumerate(COLUMNS)
        if heading != IN_TIME or any(phase.figures.goodput is not None for phase in phases)
    ]
    return [COLUMNS[place] for place in wanted], [[row[place] for place in wanted] for row in rows]


def _rows(phases: Sequence[Phase]) -> list[list[str]]:
    table = []
    for phase in phases:
        stats, latency = phase.figures, phase.figures.latency
        errors = sum(stats.errors.values())
        times = (
            [f"{1000 * value:.1f}" for value in (latency.median, latency.p95, latency.p99)] if latency else []
        )
        table.append(
            [
                phase.name if phase.system == OURS else f"{phase.system} {phase.name}",
                str(len(stats.latencies_s) + errors),
                str(errors),
                f"{stats.throughput:.3g}",
                "" if stats.goodput is None else f"{stats.goodput:.3g}",
                *(times or [""] * 3),
            ]
        )
    return table


def conclusions(phases: Sequence[Phase], offline: Sequence[Measurement] = ()) -> dict[str, float]:
    """Return ratios and differences by name, where both parts were measured."""
    ours = {phase.name: phase for phase in phases if phase.system == "calotype"}
    plain = next((phase for phase in phases if phase.system != "calotype"), None)
    load, solo = ours["load"], ours.get("solo")
    found: dict[str, float] = {}
    if solo and solo.figures.latency:
        found["solo_median_s"] = solo.figures.latency.median
    if plain and plain.figures.images_per_s:
        found["throughput_over_plain"] = load.figures.images_per_s / plain.figures.images_per_s
    if (fastest := best(offline)) and fastest.samples_per_s:
        found["offline_images_per_s"] = fastest.samples_per_s
        found["offline_batch"] = float(fastest.samples_per_unit or 1)
        found["throughput_over_offline"] = load.figures.images_per_s / fastest.samples_per_s
    for name, phase in ours.items():
        if phase not in (load, solo) and phase.figures.latency and solo and solo.figures.latency:
            found[f"{_P95_AT}{name}"] = phase.figures.latency.p95 / solo.figures.latency.median
            found[f"{_REACHED_AT}{name}"] = phase.figures.throughput / load.figures.throughput
    if load.weight:
        found["resident_bytes_before"] = load.weight.bytes[0]
        found["resident_bytes_after"] = load.weight.bytes[-1]
        found["resident_growth_in_second_half"] = load.weight.growth
    return found


def sentences(phases: Sequence[Phase], offline: Sequence[Measurement], *, idle: bool) -> list[str]:
    """Return the conclusions as sentences; `idle` if no engine ran."""
    known = conclusions(phases, offline)
    lines = [_accounts(phases)]
    if idle and "solo_median_s" in known:
        ms = 1000 * known["solo_median_s"]
        lines.append(f"interface and queue take {ms:.1f} ms per request (no engine ran)")
    if "throughput_over_plain" in known:
        lines.append(f"{known['throughput_over_plain']:.2f}× the images per second of the baseline server")
    if "throughput_over_offline" in known:
        lines.append(
            f"{known['throughput_over_offline']:.1%} of the engine's {known['offline_images_per_s']:.3g} "
            f"images per second without a server, at its best batch size of {known['offline_batch']:.0f}"
        )
    for name, ratio in known.items():
        if name.startswith(_P95_AT):
            when = name.removeprefix(_P95_AT)
            lines.append(
                f"p95 latency with {when}: {ratio:.2f}× the solo median, "
                f"at {known[_REACHED_AT + when]:.0%} of the load's throughput"
            )
    if "resident_bytes_before" in known:
        mib = {name: value / 2**20 for name, value in known.items() if name.startswith("resident")}
        lines.append(
            f"memory of server and workers: {mib['resident_bytes_before']:.0f} MiB before the load, "
            f"{mib['resident_bytes_after']:.0f} MiB after; "
            f"{mib['resident_growth_in_second_half']:+.1f} MiB during its second half"
        )
    for phase in phases:
        if phase.figures.errors:
            lines.append(f"{phase.system} {phase.name}: errors {phase.figures.errors}")
        if phase.batch_jobs:
            lines.append(f"{phase.name}: evaluations by number of jobs, up to: {_bars(phase.batch_jobs)}")
    return lines


def as_values(phases: Sequence[Phase], offline: Sequence[Measurement]) -> dict[str, Any]:
    """Return the run as JSON values."""
    return {
        "conclusions": conclusions(phases, offline),
        "adds_up": adds_up(phases),
        "phases": [
            {
                "system": phase.system,
                "name": phase.name,
                "load": asdict(phase.load),
                "interface": phase.interface,
                "throughput": phase.figures.throughput,
                "images_per_s": phase.figures.images_per_s,
                "goodput": phase.figures.goodput,
                "errors": phase.figures.errors,
                "latency_s": phase.figures.latency.model_dump() if phase.figures.latency else None,
                "batch_rows": phase.batch_rows,
                "batch_jobs": phase.batch_jobs,
                "account": asdict(phase.account) if phase.account else None,
            }
            for phase in phases
        ],
    }


def adds_up(phases: Sequence[Phase]) -> bool:
    """Whether no job was lost or duplicated."""
    return all(phase.account is None or phase.account.is_consistent for phase in phases)


def best(measurements: Sequence[Measurement]) -> Measurement | None:
    """Return the measurement with the most images per second; None if all failed."""
    worked = [one for one in measurements if one.status == "ok" and one.samples_per_s]
    return max(worked, key=lambda one: one.samples_per_s or 0.0, default=None)


def _accounts(phases: Sequence[Phase]) -> str:
    accounts = [phase.account for phase in phases if phase.account]
    requested, listed = sum(one.asked for one in accounts), sum(one.listed for one in accounts)
    if adds_up(phases):
        return f"no job lost or duplicated: {requested} requested, {listed} accepted and ended once each"
    wrong = {
        name: sum(len(getattr(one, name)) for one in accounts)
        for name in ("lost", "doubled", "unfinished", "unasked", "misnamed")
    }
    return f"INCONSISTENT: {requested} requested, {listed} listed; {wrong}"


def _bars(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{bound}: {number / total:.0%}" for bound, number in counts.items())
