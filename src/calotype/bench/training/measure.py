"""Measures one training point: a recipe's steps, or the baseline loop on the same weights.

Knows nothing of sweeps.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor

from calotype.bench.sweep.device_clocks import measured_device
from calotype.bench.sweep.partial_record import PartialRecord
from calotype.bench.sweep.timing import overhead_s, time_back_to_back
from calotype.bench.training.diffusers_baseline import DiffusersLoop
from calotype.core.errors import CalotypeError, DoesNotFitError
from calotype.engine.device import choose_device
from calotype.spec.bench_job import OURS, TrainJob
from calotype.spec.records.measurement import WALL, Preparation, Series, Work
from calotype.spec.records.measurement_training import measurement_of
from calotype.train.benchmark import BenchmarkPlan, benchmark
from calotype.train.builders import load_training_model
from calotype.train.flops import training_tflop

_FROM_THE_RECORD = (
    "device",
    "series",
    "samples_per_unit",
    "samples_per_s",
    "preparation",
    "memory",
    "work",
    "energy_j",
)


def measure_training(job: TrainJob, book: PartialRecord, *, models: Path | None = None) -> None:
    """Measure a point into its record."""
    if job.system == OURS:
        _ours(job, book, models)
    else:
        _theirs(job, book, models)


def _ours(job: TrainJob, book: PartialRecord, models: Path | None) -> None:
    plan = BenchmarkPlan(book.measurement.command, job.units, job.warmup)
    device = choose_device(job.device) if job.device else None
    done = benchmark(job.recipe, plan, device=device, models=models)
    made = measurement_of(done.record, book.measurement.point)
    book.note(**{field: getattr(made, field) for field in _FROM_THE_RECORD})
    if made.status == "oom":
        raise DoesNotFitError(made.message)
    if made.status == "error":
        raise CalotypeError(made.message)


def _theirs(job: TrainJob, book: PartialRecord, models: Path | None) -> None:
    place = choose_device(job.device)
    device, started = measured_device(place), time.perf_counter()
    model = load_training_model(job.recipe, place, models=models)
    loop = DiffusersLoop(model, job.recipe, compiled=job.system == "diffusers-compile")
    load_s = time.perf_counter() - started
    book.note(device=device.name, weights_sha256=model.identity.sha256)
    book.save()
    losses: list[Tensor] = []
    device.forget_peaks()
    timings = time_back_to_back(
        lambda: losses.append(loop.step()), device, units=job.units, warmup=job.warmup
    )
    batch = job.recipe.model.global_batch_size
    rate = batch * job.units / timings.total_s
    series = {WALL: Series.of("s", timings.wall_s), "clock": Series.of("s", [overhead_s(device)])}
    if timings.device_s:
        series["device"] = Series.of("s", timings.device_s)
    series["loss"] = Series.of("1", torch.stack(losses[job.warmup :]).tolist())
    each = training_tflop(model.architecture, job.recipe)
    book.note(
        memory=device.peak_memory(),
        series=series,
        samples_per_unit=batch,
        samples_per_s=rate,
        energy_j=timings.energy_j,
        work=None if each is None else Work(tflop_per_sample=each, tflops=each * rate),
        preparation=Preparation(load_s=load_s, warmup_s=timings.warmup_s, compile_s=timings.compile_s),
    )
