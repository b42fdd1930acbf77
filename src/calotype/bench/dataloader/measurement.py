"""Converts data loading rates to measurements, one for each number of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from calotype.bench.dataloader.gpus_fed import sentence
from calotype.bench.dataloader.measure import Readings
from calotype.bench.records.store import append
from calotype.core.fingerprint import fingerprint
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import FILE, WALL, Measurement, Preparation, Series, identity_of


@dataclass(frozen=True)
class DataPlan:
    recipe: Recipe
    name: str
    """The name the recipe was requested by."""
    command: str
    workers: Sequence[int]
    folder: Path
    gpu_samples_per_s: float | None = None
    """Training speed of one GPU, for the summary sentence."""


def measured(plan: DataPlan, read: Callable[[int], Readings]) -> list[Measurement]:
    """Measure each number of workers; save each record immediately."""
    machine = fingerprint()
    found = []
    for workers in plan.workers:
        started_at = datetime.now(UTC)
        readings = read(workers)
        settings = {
            "workers": workers,
            "data.kind": plan.recipe.data.kind,
            "data.cache_gb": plan.recipe.data.cache_gb,
            "batch": plan.recipe.model.micro_batch_size,
            "resolution": plan.recipe.model.resolution,
            "gpu_samples_per_s": plan.gpu_samples_per_s,
        }
        asked = {"kind": "data", "data": plan.recipe.data.model_dump(mode="json"), **settings}
        rate = readings.rate
        told = [] if plan.gpu_samples_per_s is None else [sentence(rate, plan.gpu_samples_per_s)]
        one = Measurement(
            id=identity_of(asked),
            point=f"{plan.name} workers={workers}",
            kind="data",
            model=plan.recipe.model.base,
            settings={key: value for key, value in settings.items() if value is not None},
            device=f"CPU {machine.cpu.model}",
            fingerprint={"machine": machine.as_dict()},
            commit=machine.commit,
            modified=machine.modified,
            command=plan.command,
            started_at=started_at,
            status="ok",
            series={
                WALL: Series.of("s", readings.batch_s),
                "cpu_per_sample": Series.of("s", [rate.cpu_s_per_sample]),
            },
            samples_per_unit=plan.recipe.model.micro_batch_size,
            samples_per_s=rate.samples_per_s,
            preparation=Preparation(load_s=readings.opened_s, warmup_s=readings.warmup_s),
            notes=told,
        )
        append(plan.folder / FILE, one)
        found.append(one)
    return found
