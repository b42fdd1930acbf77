"""Describes the machine as plain values for the web page."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calotype.core.fingerprint import package_versions
from calotype.core.hardware import Gpu, GpuSource, read_cpu, read_disk, read_memory


def host_info(gpus: GpuSource, disks: Mapping[str, Path]) -> dict[str, Any]:
    """Return CPU, memory, GPUs with their slices, disks by purpose, and package versions."""
    survey, cpu, memory = gpus.survey(), read_cpu(), read_memory()
    return {
        "host": {
            "cpu": cpu.model,
            "cores": cpu.num_usable_cores,
            "memory_bytes": memory.limit_bytes or memory.total_bytes,
            "free_bytes": memory.available_bytes,
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
            "driver": survey.driver,
        },
        "packages": package_versions(),
        "devices": [_device(gpu) for gpu in survey.gpus],
        "trouble": survey.trouble.message if survey.trouble else None,
        "disks": [_disk(purpose, path) for purpose, path in disks.items()],
    }


def _device(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "memory_bytes": gpu.memory_total_bytes,
        "free_bytes": gpu.memory_free_bytes,
        "sms": gpu.num_sms,
        "capability": gpu.compute_capability,
        "slices": [
            {
                "name": part.name,
                "uuid": part.uuid,
                "memory_bytes": part.memory_total_bytes,
                "free_bytes": part.memory_free_bytes,
            }
            for part in gpu.mig_devices
        ],
    }


def _disk(purpose: str, path: Path) -> dict[str, Any]:
    disk = read_disk(purpose, path)
    return {
        "purpose": purpose,
        "path": str(path),
        "total_bytes": disk.total_bytes,
        "free_bytes": disk.free_bytes,
        "writable": disk.writable,
    }
