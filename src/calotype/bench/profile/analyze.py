"""Evaluates a trace to a profile record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calotype.bench.profile.chrome_trace import read_trace
from calotype.bench.profile.launch_bound import Advice, launch_bound_time
from calotype.bench.profile.summary import groups_of, kernels_of, stages_of
from calotype.spec.records.profile import NsightCommand, ProfileRecord


@dataclass(frozen=True)
class ProfiledRun:
    """A trace and its job."""

    trace: Path
    command: str
    job: Literal["generate", "train", "trace"]
    asked: dict[str, Any]
    device: str | None
    """None if only the trace has it."""
    stages: Sequence[str]
    advice: Advice
    fingerprint: dict[str, Any]
    unprofiled_s: float | None = None
    warmup_s: Sequence[float] = ()
    nsight: Sequence[NsightCommand] = ()


def analyze(taken: ProfiledRun) -> ProfileRecord:
    """Evaluate a trace."""
    trace = read_trace(taken.trace)
    kernels = kernels_of(trace)
    return ProfileRecord(
        command=taken.command,
        job=taken.job,
        asked=taken.asked,
        device=taken.device or trace.device_name or "unknown device",
        clock="device" if trace.has_device else "host",
        window_s=trace.window.length * 1e-6,
        unprofiled_s=taken.unprofiled_s,
        warmup_s=list(taken.warmup_s),
        groups=groups_of(trace, kernels),
        kernels=kernels,
        stages=stages_of(trace, taken.stages),
        waiting=launch_bound_time(trace, taken.advice, taken.unprofiled_s),
        nsight=list(taken.nsight),
        trace=taken.trace.name,
        fingerprint=taken.fingerprint,
    )
