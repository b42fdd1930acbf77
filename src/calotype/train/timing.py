"""Time training steps: seconds, throughput, memory and energy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from calotype.core.nvml import energy_meter
from calotype.core.progress import Progress
from calotype.spec.recipe import Recipe
from calotype.spec.records.train_benchmark import DeviceMemory, Window
from calotype.train.data.dataloader import DataLoader
from calotype.train.distributed.process_group import Rank
from calotype.train.trainer import Trainer


@dataclass(frozen=True)
class Timed:
    """The measured times of a benchmark window."""

    seconds: float
    host_step_s: list[float]
    device_step_s: list[float] | None
    losses: list[float | None]
    energy_j: float | None = None


def timed(trainer: Trainer, dataloader: DataLoader, steps: int, progress: Progress) -> Timed:
    """Train for `steps` steps and time them, from one device synchronization to another."""
    on_gpu = trainer.process.device.type == "cuda"
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)] if on_gpu else []
    losses: list[float | None] = []
    host: list[float] = []
    trainer.process.barrier()
    read_joules = _energy_meter(trainer.process)
    _synchronize(trainer.process)
    joules_at_start = read_joules()
    started = last = time.perf_counter()
    if on_gpu:
        events[0].record()
    for index in range(steps):
        loss = trainer.train_step(dataloader).loss
        if on_gpu:
            events[index + 1].record()
        now = time.perf_counter()
        host.append(now - last)
        last = now
        losses.append(loss if math.isfinite(loss) else None)
        progress.advance()
    _synchronize(trainer.process)
    seconds = time.perf_counter() - started
    joules_at_end = read_joules()
    energy_j = None if joules_at_start is None or joules_at_end is None else joules_at_end - joules_at_start
    device = [a.elapsed_time(b) / 1000 for a, b in pairwise(events)] if on_gpu else None
    return Timed(seconds, host, device, losses, energy_j)


def _energy_meter(process: Rank) -> Callable[[], float | None]:
    if process.device.type != "cuda" or process.world_size > 1:
        return lambda: None
    return energy_meter(f"GPU-{torch.cuda.get_device_properties(process.device).uuid}")


def _synchronize(process: Rank) -> None:
    if process.device.type == "cuda":
        torch.cuda.synchronize(process.device)


def window_of(timed: Timed, recipe: Recipe, tflop: float | None, ceiling: float | None) -> Window:
    """The resulting speeds; `tflop` is the work of one sample, `ceiling` the peak TFLOP/s of a device."""
    samples = recipe.model.global_batch_size * len(timed.losses)
    speed = samples / timed.seconds
    each = speed / recipe.num_processes
    reached = None if tflop is None else tflop * each
    return Window(
        samples=samples,
        seconds=timed.seconds,
        samples_per_s=speed,
        samples_per_device_s=each,
        host_step_s=timed.host_step_s,
        device_step_s=timed.device_step_s,
        losses=timed.losses,
        tflop_per_sample=tflop,
        tflops_per_device=reached,
        mfu=None if reached is None or ceiling is None else reached / ceiling,
        energy_j=timed.energy_j,
    )


def own_memory(process: Rank) -> list[DeviceMemory]:
    """The memory of this rank's device; nothing on the CPU."""
    device = process.device
    if device.type != "cuda":
        return []
    return [
        DeviceMemory(
            allocated_bytes=torch.cuda.max_memory_allocated(device),
            reserved_bytes=torch.cuda.max_memory_reserved(device),
            total_bytes=torch.cuda.get_device_properties(device).total_memory,
        )
    ]


def all_memory(process: Rank) -> list[DeviceMemory]:
    """The memory of every device of the run; all ranks call it together."""
    if process.world_size == 1:
        return own_memory(process)
    gathered: list[Any] = [None] * process.world_size
    dist.all_gather_object(gathered, own_memory(process))
    return [memory for of_one in gathered for memory in of_one]
