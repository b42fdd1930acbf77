"""Steps by the clock: how long, how fast, in how much memory. Knows nothing of records and failures."""

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
    """What the clocks said."""

    seconds: float
    host_step_s: list[float]
    device_step_s: list[float] | None
    losses: list[float | None]
    energy_j: float | None = None


def timed(trainer: Trainer, dataloader: DataLoader, steps: int, progress: Progress) -> Timed:
    """Train for so many steps by the clock, from one synchronisation of the device to another."""
    on_gpu = trainer.process.device.type == "cuda"
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)] if on_gpu else []
    losses: list[float | None] = []
    host: list[float] = []
    trainer.process.barrier()
    joules = _energy_meter(trainer.process)
    _synchronize(trainer.process)
    drawn = joules()
    started = last = time.perf_counter()
    if on_gpu:
        marks[0].record()
    for index in range(steps):
        loss = trainer.train_step(dataloader).loss
        if on_gpu:
            marks[index + 1].record()
        now = time.perf_counter()
        host.append(now - last)
        last = now
        losses.append(loss if math.isfinite(loss) else None)
        progress.advance()
    _synchronize(trainer.process)
    seconds = time.perf_counter() - started
    drawn_at_last = joules()
    energy_j = None if drawn is None or drawn_at_last is None else drawn_at_last - drawn
    device = [a.elapsed_time(b) / 1000 for a, b in pairwise(marks)] if on_gpu else None
    return Timed(seconds, host, device, losses, energy_j)


def _energy_meter(process: Rank) -> Callable[[], float | None]:
    if process.device.type != "cuda" or process.world_size > 1:
        return lambda: None
    return energy_meter(f"GPU-{torch.cuda.get_device_properties(process.device).uuid}")


def _synchronize(process: Rank) -> None:
    if process.device.type == "cuda":
        torch.cuda.synchronize(process.device)


def window_of(timed: Timed, recipe: Recipe, tflop: float | None, ceiling: float | None) -> Window:
    """The speeds that follow; `tflop` is the work of one sample, `ceiling` the most TFLOP/s there are."""
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
    """Of this process's device; nothing on the CPU."""
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
    """Of every device of the run; all processes ask together."""
    if process.world_size == 1:
        return own_memory(process)
    gathered: list[Any] = [None] * process.world_size
    dist.all_gather_object(gathered, own_memory(process))
    return [memory for of_one in gathered for memory in of_one]
