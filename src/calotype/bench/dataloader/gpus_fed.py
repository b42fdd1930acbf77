"""Converts a data loading rate to the number of GPUs that it feeds."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """The rate of one number of workers."""

    workers: int
    """0 means that the training process reads itself."""
    samples_per_s: float
    """Measured on the available cores."""
    cpu_s_per_sample: float
    """CPU time over all processes, independent of the number of cores."""

    @property
    def samples_per_core_s(self) -> float:
        return 1 / self.cpu_s_per_sample


def gpus_fed(samples_per_s: float, gpu_samples_per_s: float) -> int:
    """Return how many GPUs of that speed never wait."""
    return math.floor(samples_per_s / gpu_samples_per_s)


def workers_for(num_gpus: int, gpu_samples_per_s: float, rate: Rate) -> int:
    """Return the fewest workers, each with its own core, that feed `num_gpus` GPUs."""
    return math.ceil(num_gpus * gpu_samples_per_s * rate.cpu_s_per_sample)


def sentence(rate: Rate, gpu_samples_per_s: float) -> str:
    """Describe the limit for planning a run."""
    fed, who = gpus_fed(rate.samples_per_s, gpu_samples_per_s), "1 worker feeds"
    if rate.workers != 1:
        who = f"{rate.workers} workers feed" if rate.workers else "the training process alone feeds"
    gpus = "1 GPU" if fed == 1 else f"{fed} GPUs"
    needed = workers_for(8, gpu_samples_per_s, rate)
    return (
        f"{who} {gpus} of {gpu_samples_per_s:g} samples/s ({rate.samples_per_s:.4g} samples/s measured, "
        f"{rate.samples_per_core_s:.4g} per core); 8 such GPUs need {needed} workers with a core each"
    )
