"""Converts records of training benchmarks to measurements."""

from __future__ import annotations

from collections.abc import Mapping

from calotype.spec.records.measurement import (
    WALL,
    Measurement,
    PeakMemory,
    Preparation,
    Series,
    Setting,
    Status,
    Work,
    identity_of,
)
from calotype.spec.records.train_benchmark import BenchmarkRecord, Window

_STATUS: dict[str, Status] = {"OK": "ok", "OOM": "oom", "Error!": "error"}


def measurement_of(
    record: BenchmarkRecord,
    point: str,
    *,
    settings: Mapping[str, Setting] | None = None,
    round_number: int = 1,
) -> Measurement:
    """A training record as a measurement, named as in its table or sweep."""
    model, window, machine = record.recipe["model"], record.window, record.fingerprint.get("machine", {})
    settings_of_id = {
        "kind": "train",
        "recipe": record.recipe,
        "steps": record.steps,
        "warm": record.warmup_steps,
    }
    return Measurement(
        id=identity_of(settings_of_id),
        point=point,
        round=round_number,
        kind="train",
        model=str(model["base"]),
        precision=str(model["precision"]),
        recipe=record.recipe,
        settings=dict(settings or {}),
        device=record.gpu,
        devices=record.devices,
        nodes=record.nodes,
        fingerprint=record.fingerprint,
        commit=machine.get("commit"),
        modified=machine.get("modified"),
        command=record.command,
        started_at=record.started_at,
        seconds_in_all=record.seconds_in_all,
        status=_STATUS[record.outcome],
        message=record.message,
        series=_series(window) if window else {},
        samples_per_unit=window.samples // record.steps if window else None,
        samples_per_s=window.samples_per_s if window else None,
        preparation=_preparation(record),
        memory=[PeakMemory(**memory.model_dump(), device_bytes=None) for memory in record.memory],
        work=_work(record),
        energy_j=window.energy_j if window else None,
    )


def _series(window: Window) -> dict[str, Series]:
    found = {WALL: Series.of("s", window.host_step_s)}
    if window.device_step_s:
        found["device"] = Series.of("s", window.device_step_s)
    losses = [loss for loss in window.losses if loss is not None]
    return {**found, "loss": Series.of("1", losses)} if losses else found


def _preparation(record: BenchmarkRecord) -> Preparation:
    warm, window = record.warmup_step_s, record.window
    if not warm or not window:
        return Preparation(warmup_s=warm)
    usual = Series.of("s", window.host_step_s).summary.median
    return Preparation(warmup_s=warm, compile_s=max(0.0, warm[0] - usual))


def _work(record: BenchmarkRecord) -> Work | None:
    window = record.window
    if window is None or window.tflop_per_sample is None or window.tflops_per_device is None:
        return None
    work = Work(tflop_per_sample=window.tflop_per_sample, tflops=window.tflops_per_device)
    if record.ceiling_tflops is None:
        return work
    return work.under(record.ceiling_tflops, record.ceiling_source or "given")
