"""Hardware of a machine as frozen dataclasses: GPUs, processor, memory and disks.

Processor, memory and disk are read from the operating system here; GPUs come from a `GpuSource`, so that
tests can replace NVML.
"""

import os
import platform
import shutil
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MigMode:
    """MIG mode of a GPU: now, and after its next reset."""

    current: bool
    pending: bool


@dataclass(frozen=True)
class MigDevice:
    """One MIG slice; None for values that the driver does not report."""

    index: int
    name: str | None
    uuid: str | None
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    num_sms: int | None
    gpu_instance: int | None
    compute_instance: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU; None for values that it does not have or that the driver does not report."""

    index: int
    name: str | None = None
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    num_sms: int | None = None
    compute_capability: str | None = None
    mig: MigMode | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    power_limit_watts: float | None = None
    refusals: tuple[str, ...] = ()
    """Queries that the driver refused, with the reason; unsupported queries do not count."""


class TroubleKind(StrEnum):
    """Why the GPUs could not be queried."""

    NO_DRIVER = "no_driver"
    NOT_LOADED = "driver_not_loaded"
    NO_PERMISSION = "no_permission"
    TOO_OLD = "driver_too_old"
    MISMATCH = "driver_mismatch"
    OTHER = "other"


@dataclass(frozen=True)
class GpuTrouble:
    """Why the GPUs could not be queried, with the message of the driver."""

    kind: TroubleKind
    message: str


@dataclass(frozen=True)
class GpuSurvey:
    """All that the driver reports about its GPUs, or why it reports nothing."""

    driver: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    trouble: GpuTrouble | None = None


class GpuSource(Protocol):
    """A source of GPU surveys. It never raises; errors are part of the survey."""

    def survey(self) -> GpuSurvey: ...


@dataclass(frozen=True)
class Cpu:
    """The processor; `num_usable_cores` respects CPU affinity and the quota of the container."""

    model: str
    architecture: str
    num_cores: int
    num_usable_cores: int


@dataclass(frozen=True)
class Memory:
    """Main memory; `available_bytes` respects the limit of the container."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None


@dataclass(frozen=True)
class Disk:
    """Free space at a folder, whether or not it exists yet."""

    purpose: str
    path: Path
    total_bytes: int | None
    free_bytes: int | None
    writable: bool


def read_cpu(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Cpu:
    """The processor as reported by the operating system."""
    num_cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else num_cores
    quota = _cpu_quota(cgroup)
    return Cpu(
        model=_fields(proc / "cpuinfo").get("model name") or platform.processor() or "unknown",
        architecture=platform.machine(),
        num_cores=num_cores,
        num_usable_cores=min(usable, quota) if quota else usable,
    )


def read_family(proc: Path = _PROC) -> tuple[str, int]:
    """Vendor and x86 family of the processor; empty and 0 if unknown."""
    fields = _fields(proc / "cpuinfo")
    family = fields.get("cpu family", "")
    return fields.get("vendor_id", ""), int(family) if family.isdigit() else 0


def read_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Memory:
    """Main memory, and the limit of the container if it is smaller."""
    info = _fields(proc / "meminfo")
    total, available = _kibibytes(info.get("MemTotal")), _kibibytes(info.get("MemAvailable"))
    limit = _number(cgroup / "memory.max") or _number(cgroup / "memory" / "memory.limit_in_bytes")
    # cgroups v1 reports "no limit" as a number near 2**63.
    if limit is None or total is None or limit >= total:
        return Memory(total, available, None)
    used = _number(cgroup / "memory.current") or _number(cgroup / "memory" / "memory.usage_in_bytes") or 0
    return Memory(total, min(available or total, max(limit - used, 0)), limit)


def read_disk(purpose: str, path: Path) -> Disk:
    """Free space at `path`, measured at the nearest existing parent folder."""
    folder = path.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return Disk(purpose, path, None, None, writable=False)
    writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    return Disk(purpose, path, usage.total, usage.free, writable)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(path: Path) -> dict[str, str]:
    """Parse `name : value` lines; the first of each name counts, as every core repeats the model."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _kibibytes(text: str | None) -> int | None:
    return int(text.split()[0]) * 1024 if text else None


def _cpu_quota(cgroup: Path) -> int | None:
    """Whole cores in the CPU quota of the container; tries cgroups v2, then v1."""
    words = _text(cgroup / "cpu.max").split()
    if not words:
        words = [_text(cgroup / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        return None
    return max(1, ceil(int(words[0]) / int(words[1])))
