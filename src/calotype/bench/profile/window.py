"""Runs something under torch's profiler, or with marks alone for NVIDIA's. Knows nothing of what it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from calotype.bench.profile.stages import stage
from calotype.bench.profile.trace import WINDOW

Job = Callable[[], object]


def wall_s(job: Job, device: torch.device) -> float:
    """Seconds from an idle device to an idle device."""
    _settle(device)
    started = time.perf_counter()
    job()
    _settle(device)
    return time.perf_counter() - started


def record(job: Job, device: torch.device, trace: Path) -> None:
    """Run under torch's profiler and write what it saw."""
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    _settle(device)
    with profile(activities=kinds) as seen, stage(WINDOW):
        job()
        _settle(device)
    trace.parent.mkdir(parents=True, exist_ok=True)
    seen.export_chrome_trace(str(trace))


def mark(job: Job, device: torch.device) -> None:
    """Run between the marks that `--capture-range=cudaProfilerApi` waits for; nothing is recorded here."""
    _settle(device)
    with _capturing(device), stage(WINDOW):
        job()
        _settle(device)


@contextmanager
def _capturing(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    torch.cuda.cudart().cudaProfilerStart()
    try:
        yield
    finally:
        torch.cuda.cudart().cudaProfilerStop()


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
