"""Measures one inference point: loads, warms up, measures time and memory, and compares the image.

End to end: from the text to pixels on the host, the prompt encoded anew each time. Knows nothing of sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image, ImageOps

from calotype.bench.inference.diffusers_baseline import baseline_pipeline
from calotype.bench.inference.flops import tflop_per_picture
from calotype.bench.inference.model_cache import LoadedModels
from calotype.bench.inference.similarity import can_differ, similarity_to_baseline
from calotype.bench.inference.stage_times import time_stages
from calotype.bench.sweep.device_clocks import Cpu, Cuda, measured_device
from calotype.bench.sweep.partial_record import PartialRecord
from calotype.bench.sweep.timing import Clock, Timings, overhead_s, time_each
from calotype.core.paths import atomic_write
from calotype.engine.device import precision_name
from calotype.engine.engine import Engine
from calotype.engine.presets import pass_names
from calotype.spec.bench_job import OURS, InferenceJob
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.measurement import WALL, Preparation, Series, Work
from calotype.spec.statistics import summarize

_SIDE = 512


@dataclass
class _Loaded:
    """A loaded model with its load time."""

    engine: Engine
    request: GenerateRequest
    """The request with the model's defaults filled in."""
    device: Cpu | Cuda
    load_s: float


def measure_inference(
    job: InferenceJob,
    record: PartialRecord,
    keeper: LoadedModels,
    *,
    models: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Measure a point into its record; `picture` is the file for its first image."""
    loaded = _load(job, record, keeper, models)
    last: list[list[Image.Image]] = []
    make = _maker(job, loaded)

    def unit() -> None:
        last[:] = [make()]

    loaded.device.forget_peaks()
    compiled_s = until_compiled(loaded.engine, unit) if job.system == OURS else 0.0
    timings = time_each(unit, loaded.device, units=job.units, warmup=job.warmup)
    record.note(
        memory=loaded.device.peak_memory(),
        **_figures(timings, loaded, job.request.count, compiled_s),
        series=_series(timings, loaded, job),
    )
    _note_work(loaded, record)
    if picture:
        _keep_picture(last[0][0], picture, record)
    if job.judged and can_differ(job, loaded.engine.model):
        _note_likeness(last[0][0], job, loaded, record)


def _load(job: InferenceJob, record: PartialRecord, keeper: LoadedModels, models: Path | None) -> _Loaded:
    if keeper.holds_model:
        record.remark("an earlier point in the same process had loaded the weights")
    started = time.perf_counter()
    engine = keeper.engine_for(job, models)
    load_s = time.perf_counter() - started
    model, device = engine.model, measured_device(engine.model.device)
    request = engine.resolve_defaults(job.request)
    request = request.with_changes(tile_vae=engine.plan_memory(request, request.count).tiled)
    record.note(
        device=device.name,
        weights_sha256=model.identity.sha256,
        precision=precision_name(model.dtype),
        passes=list(pass_names(job.preset, model.device.type)) if job.preset else None,
        request=request.as_dict(),
        samples_per_unit=request.count,
    )
    record.save()
    return _Loaded(engine, request, device, load_s)


def _maker(job: InferenceJob, loaded: _Loaded) -> Callable[[], list[Image.Image]]:
    engine, request = loaded.engine, loaded.request
    if job.system != OURS:
        return baseline_pipeline(engine.model, job.system, request)

    def make() -> list[Image.Image]:
        engine.clear_prompt_cache()
        return engine.generate(request, batch_size=request.count).images

    return make


class Compiling(Protocol):
    """The part of an engine that compiles."""

    def finish_compiling(self) -> int | None: ...


def until_compiled(engine: Compiling, unit: Callable[[], None], clock: Clock = time.perf_counter) -> float:
    """Run units until nothing is left to compile; return the seconds, 0 without compilation.

    Units that run meanwhile are uncompiled and share the CPU with the compiler, so they are not measured.
    """
    started, before = clock(), engine.finish_compiling()
    if before is None:
        return 0.0
    unit()
    while (now := engine.finish_compiling()) != before:
        before = now
        unit()
    return clock() - started


def _figures(timings: Timings, loaded: _Loaded, batch: int, compiled_s: float) -> dict[str, object]:
    compile_s = None if timings.compile_s is None else compiled_s + timings.compile_s
    return {
        "samples_per_s": batch / summarize(timings.wall_s).median,
        "energy_j": timings.energy_j,
        "preparation": Preparation(load_s=loaded.load_s, warmup_s=timings.warmup_s, compile_s=compile_s),
    }


def _series(timings: Timings, loaded: _Loaded, job: InferenceJob) -> dict[str, Series]:
    series = {WALL: Series.of("s", timings.wall_s)}
    if timings.device_s:
        series["device"] = Series.of("s", timings.device_s)
    series["clock"] = Series.of("s", [overhead_s(loaded.device)])
    if job.system == OURS:
        series |= time_stages(loaded.engine, loaded.request, loaded.device)
    return series


def _note_work(loaded: _Loaded, record: PartialRecord) -> None:
    """Count the arithmetic after the measurement, because counting takes seconds."""
    architecture, rate = loaded.engine.model.architecture, record.measurement.samples_per_s
    assert rate
    try:
        each = tflop_per_picture(architecture, loaded.request, loaded.engine.sigmas(loaded.request))
    # A network that torch cannot count must not discard the measurement.
    except Exception as error:
        record.remark(f"FLOPs were not counted: {type(error).__name__}: {error}")
        return
    record.note(work=Work(tflop_per_sample=each, tflops=each * rate))


def _keep_picture(image: Image.Image, file: Path, record: PartialRecord) -> None:
    """Save a small copy for the contact sheets of a report."""
    try:
        file.parent.mkdir(exist_ok=True)
        small = ImageOps.contain(image, (_SIDE, _SIDE)) if max(image.size) > _SIDE else image
        with atomic_write(file) as out:
            small.convert("RGB").save(out, "WEBP", quality=90)
    # The figures stand without it.
    except OSError as error:
        record.remark(f"the image was not saved: {error}")


def _note_likeness(image: Image.Image, job: InferenceJob, loaded: _Loaded, record: PartialRecord) -> None:
    try:
        record.note(quality=similarity_to_baseline(image, job, loaded.engine.model))
    # The figures stand without it.
    except Exception as error:
        record.remark(f"the image was not compared: {type(error).__name__}: {error}")
