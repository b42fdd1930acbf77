"""What a machine is made of: its cards, processor, memory and disks, as plain frozen facts.

Processor, memory and disk are read from the operating system here; cards come from a `GpuSource`, so that a
test can stand in for NVML. Knows nothing of torch, nor of what any fact means to a user.
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
    """Whether a card is cut into slices now, and whether it will be after its next reset."""

    current: bool
    pending: bool


@dataclass(frozen=True)
class MigDevice:
    """One slice of a card. None means that the driver would not say."""

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
    """One card. None means that the card has no such thing or the driver does not tell."""

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
    """What the driver refused to tell, with its reason; being unsupported is no refusal."""


class TroubleKind(StrEnum):
    """Why no card could be asked."""

    NO_DRIVER = "no_driver"
    NOT_LOADED = "driver_not_loaded"
    NO_PERMISSION = "no_permission"
    TOO_OLD = "driver_too_old"
    MISMATCH = "driver_mismatch"
    OTHER = "other"


@dataclass(frozen=True)
class GpuTrouble:
    """Why no card could be asked, and the driver's own words for it."""

    kind: TroubleKind
    message: str


@dataclass(frozen=True)
class GpuSurvey:
    """Everything the driver says about its cards, or why it says nothing."""

    driver: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    trouble: GpuTrouble | None = None


class GpuSource(Protocol):
    """Whoever knows the cards. Never raises: what goes wrong is part of the answer."""

    def survey(self) -> GpuSurvey: ...


@dataclass(frozen=True)
class Cpu:
    """The processor; `num_usable_cores` is what affinity and the container's quota leave to this process."""

    model: str
    architecture: str
    num_cores: int
    num_usable_cores: int


@dataclass(frozen=True)
class Memory:
    """Main memory; `available_bytes` already respects the container's limit."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None


@dataclass(frozen=True)
class Disk:
    """Room in a folder, whether or not the folder has been made yet."""

    purpose: str
    path: Path
    total_bytes: int | None
    free_bytes: int | None
    writable: bool


def read_cpu(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Cpu:
    """The processor as the operating system describes it."""
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
    """The processor's maker and its family, as x86 counts them; empty and 0 where it does not say."""
    fields = _fields(proc / "cpuinfo")
    family = fields.get("cpu family", "")
    return fields.get("vendor_id", ""), int(family) if family.isdigit() else 0


def read_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> Memory:
    """Main memory, and the smaller share a container may have been given."""
    info = _fields(proc / "meminfo")
    total, available = _kibibytes(info.get("MemTotal")), _kibibytes(info.get("MemAvailable"))
    limit = _number(cgroup / "memory.max") or _number(cgroup / "memory" / "memory.limit_in_bytes")
    # Version 1 of cgroups writes "no limit" as a number near 2**63.
    if limit is None or total is None or limit >= total:
        return Memory(total, available, None)
    used = _number(cgroup / "memory.current") or _number(cgroup / "memory" / "memory.usage_in_bytes") or 0
    return Memory(total, min(available or total, max(limit - used, 0)), limit)


def read_disk(purpose: str, path: Path) -> Disk:
    """The room at `path`, measured at the nearest folder that exists."""
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
    """`name : value` lines; the first of each name counts, since every core repeats the model."""
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
    """Whole cores the container may keep busy; version 2 of cgroups first, then version 1."""
    words = _text(cgroup / "cpu.max").split()
    if not words:
        words = [_text(cgroup / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        return None
    return max(1, ceil(int(words[0]) / int(words[1])))
