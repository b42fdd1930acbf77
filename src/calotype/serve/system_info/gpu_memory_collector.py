"""Prometheus collector for the memory of GPUs and MIG slices."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from calotype.core.hardware import Gpu, GpuSource, MigDevice


class GpuMemory(Collector):
    """Queries the driver at every scrape."""

    def __init__(self, gpus: GpuSource) -> None:
        self._gpus = gpus

    def collect(self) -> Iterator[GaugeMetricFamily]:
        total = GaugeMetricFamily("calotype_gpu_memory_bytes", "Memory of a GPU or slice", labels=["gpu"])
        free = GaugeMetricFamily("calotype_gpu_free_memory_bytes", "Of it, free", labels=["gpu"])
        for gpu in self._gpus.survey().gpus:
            parts: tuple[Gpu | MigDevice, ...] = (gpu, *gpu.mig_devices)
            for part in parts:
                for family, value in ((total, part.memory_total_bytes), (free, part.memory_free_bytes)):
                    if part.uuid is not None and value is not None:
                        family.add_metric([part.uuid], value)
        yield from (total, free)
