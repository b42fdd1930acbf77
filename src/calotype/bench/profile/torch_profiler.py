"""Runs a job under torch's profiler, or with marks only for NVIDIA's tools."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerActivity, profile

from calotype.bench.profile.annotations import stage
from calotype.bench.profile.chrome_trace import WINDOW
from calotype.core.paths import atomic_write

Job = Callable[[], object]


def wall_s(job: Job, device: torch.device) -> float:
    """Return the seconds from an idle device to an idle device."""
    _settle(device)
    started = time.perf_counter()
    job()
    _settle(device)
    return time.perf_counter() - started


def record(job: Job, device: torch.device, trace: Path) -> None:
    """Run under torch's profiler and write the trace."""
    # Kineto would print to the terminal when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    if device.type == "cuda":
        # The first profile of a process initializes the driver, which would appear as gaps in ours.
        with profile(activities=kinds):
            _settle(device)
    _settle(device)
    with profile(activities=kinds) as seen, stage(WINDOW):
        job()
        _settle(device)
    with TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(plain))
        # Torch would compress it line by line, which takes longer than most jobs.
        with plain.open("rb") as source, atomic_write(trace) as file, gzip.open(file, "wb", 5) as packed:
            shutil.copyfileobj(source, packed, 2**20)


def mark(job: Job, device: torch.device) -> None:
    """Run between the marks that `--capture-range=cudaProfilerApi` waits for, without recording."""
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
