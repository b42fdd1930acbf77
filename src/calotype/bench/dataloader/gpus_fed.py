"""What a loader's rate means: how many GPUs so many workers feed. Plain numbers; measures nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """Of one number of workers."""

    workers: int
    """0: the training process itself reads."""
    samples_per_s: float
    """By the clock, on the cores there are."""
    cpu_s_per_sample: float
    """Of all its processes together; the same however many cores there are."""

    @property
    def samples_per_core_s(self) -> float:
        return 1 / self.cpu_s_per_sample


def gpus_fed(samples_per_s: float, gpu_samples_per_s: float) -> int:
    """GPUs of that speed that never wait."""
    return math.floor(samples_per_s / gpu_samples_per_s)


def workers_for(num_gpus: int, gpu_samples_per_s: float, rate: Rate) -> int:
    """The fewest workers, each with a core of its own, that feed so many GPUs."""
    return math.ceil(num_gpus * gpu_samples_per_s * rate.cpu_s_per_sample)


def sentence(rate: Rate, gpu_samples_per_s: float) -> str:
    """The limit in words, for somebody who plans a run."""
    fed, who = gpus_fed(rate.samples_per_s, gpu_samples_per_s), "1 worker feeds"
    if rate.workers != 1:
        who = f"{rate.workers} workers feed" if rate.workers else "the training process alone feeds"
    gpus = "1 GPU" if fed == 1 else f"{fed} GPUs"
    needed = workers_for(8, gpu_samples_per_s, rate)
    return (
        f"{who} {gpus} of {gpu_samples_per_s:g} samples/s ({rate.samples_per_s:.4g} samples/s measured, "
        f"{rate.samples_per_core_s:.4g} per core); 8 such GPUs need {needed} workers with a core each"
    )
