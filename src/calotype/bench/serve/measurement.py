"""Converts the phases of a run to measurements, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from calotype.bench.serve.run import Phase, ServePlan
from calotype.bench.serve.targets import Target
from calotype.core.fingerprint import Fingerprint
from calotype.spec.records.measurement import WALL, Measurement, Preparation, Series, Setting, identity_of


def as_measurement(
    phase: Phase,
    target: Target,
    plan: ServePlan,
    *,
    device: str,
    machine: Fingerprint,
    command: str,
    started_at: datetime,
) -> Measurement:
    """Convert a phase to a measurement."""
    stats, settings = phase.figures, _settings(phase, target)
    identity = {"system": phase.system, "models": list(target.plan.models), "request": dict(plan.request)}
    ours = phase.system == "calotype"
    return Measurement(
        id=identity_of({**identity, **settings, "preset": target.plan.preset if ours else None}),
        point=f"{phase.system} {phase.name}",
        kind="serve",
        system=phase.system,
        model=target.plan.models[0],
        preset=target.plan.preset if ours else None,
        precision=target.plan.precision,
        request=dict(plan.request),
        settings=settings,
        device=device if device not in ("cpu", "nothing") else f"CPU {machine.cpu.model}",
        devices=len(target.plan.devices),
        fingerprint={"machine": machine.as_dict()},
        commit=machine.commit,
        modified=machine.modified,
        command=command,
        started_at=started_at,
        status="ok" if stats.latencies_s else "error",
        message=None if stats.latencies_s else f"no request succeeded: {stats.errors}",
        series=_series(phase),
        samples_per_unit=int(plan.request.get("count", 1)),
        samples_per_s=stats.images_per_s,
        preparation=Preparation(load_s=target.load_s if ours else None),
        host_peak_bytes=max(phase.weight.bytes) if phase.weight else None,
        notes=_notes(phase),
    )


def _settings(phase: Phase, target: Target) -> dict[str, Setting]:
    load = phase.load
    return {
        "phase": phase.name,
        "engine": target.plan.engine if phase.system == "calotype" else None,
        "interface": phase.interface,
        "clients": load.clients,
        "rate": load.rate,
        "duration_s": load.duration_s,
        "requests": load.requests,
        "warmup_s": load.warmup_s,
        "target_s": phase.figures.target_s,
        "max_rows": target.plan.max_rows if phase.system == "calotype" else None,
    }


def _series(phase: Phase) -> dict[str, Series]:
    stats = phase.figures
    series = {"throughput": Series.of("requests/s", [stats.throughput])}
    if stats.latencies_s:
        series[WALL] = Series.of("s", stats.latencies_s)
    if stats.goodput is not None:
        series["goodput"] = Series.of("requests/s", [stats.goodput])
    if phase.mean_jobs is not None:
        series["batch_jobs"] = Series.of("1", [phase.mean_jobs])
    if phase.weight:
        series["resident"] = Series.of("byte", phase.weight.bytes)
    return series


def _notes(phase: Phase) -> list[str]:
    notes = []
    if phase.figures.errors:
        notes.append(f"errors: {_pairs(phase.figures.errors)}")
    if phase.batch_rows:
        notes.append(f"evaluations by number of rows, up to: {_pairs(phase.batch_rows)}")
        notes.append(f"evaluations by number of jobs, up to: {_pairs(phase.batch_jobs)}")
    if phase.account:
        known = phase.account
        notes.append(
            f"{known.asked} requested, {known.listed} listed, {len(known.lost)} lost, "
            f"{len(known.doubled)} duplicated, {len(known.unfinished)} unfinished, "
            f"{len(known.unasked)} unrequested, {len(known.misnamed)} with a wrong id"
        )
    return notes


def _pairs(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
