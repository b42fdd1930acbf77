"""Clocks, memory peaks and energy of devices: CUDA events and NVML for a GPU, the host clock for a CPU."""

from __future__ import annotations

import resource
import time

import torch

from calotype.core.hardware import read_cpu
from calotype.core.nvml import energy_meter
from calotype.spec.records.measurement import PeakMemory


class Cpu:
    """A CPU, whose work is synchronous."""

    has_clock = False

    def __init__(self) -> None:
        self.name = f"CPU {read_cpu().model}"

    def finish(self) -> None:
        pass

    def mark(self) -> float:
        return time.perf_counter()

    def seconds_between(self, one: float, other: float) -> float:
        return other - one

    def energy_j(self) -> float | None:
        return None

    def forget_peaks(self) -> None:
        pass

    def peak_memory(self) -> list[PeakMemory]:
        return []


class Cuda:
    """One GPU."""

    has_clock = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.name = torch.cuda.get_device_name(device)
        self._joules = energy_meter(f"GPU-{torch.cuda.get_device_properties(device).uuid}")

    def finish(self) -> None:
        torch.cuda.synchronize(self._device)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds_between(self, one: torch.cuda.Event, other: torch.cuda.Event) -> float:
        return one.elapsed_time(other) / 1000

    def energy_j(self) -> float | None:
        return self._joules()

    def forget_peaks(self) -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_memory(self) -> list[PeakMemory]:
        # Torch keeps reserved memory, so the current use is close to the peak.
        free, total = torch.cuda.mem_get_info(self._device)
        return [
            PeakMemory(
                allocated_bytes=torch.cuda.max_memory_allocated(self._device),
                reserved_bytes=torch.cuda.max_memory_reserved(self._device),
                device_bytes=total - free,
                total_bytes=total,
            )
        ]


def measured_device(device: torch.device) -> Cpu | Cuda:
    return Cuda(device) if device.type == "cuda" else Cpu()


def host_peak_bytes() -> int:
    """Return the peak main memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
