"""The interface to a GPU driver for MIG, implemented by NVML, nvidia-smi and the simulation.

States are plain data, and every call either succeeds or raises a `DriverError`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from calotype.core.errors import CalotypeError, ExitCode, NotFoundError
from calotype.core.hardware import MigMode
from calotype.mig.layout import ComputePart, Layout, Slice
from calotype.mig.profiles import GpuModel


class Refusal(StrEnum):
    """Why a driver refused a call."""

    NO_DRIVER = "no driver"
    NO_PERMISSION = "no permission"
    IN_USE = "in use"
    NO_ROOM = "insufficient resources"
    LOST = "GPU lost"
    NOT_SUPPORTED = "not supported"
    NOT_FOUND = "not found"
    OTHER = "other"


_FIXES = {
    Refusal.NO_DRIVER: "install and load the NVIDIA driver, or choose another with --driver",
    Refusal.NO_PERMISSION: "run it as root (sudo)",
    Refusal.IN_USE: "stop its users (nvidia-persistenced, DCGM and Xorg use GPUs too) and try again",
    Refusal.NO_ROOM: "see what fits with `calotype mig plan`",
    Refusal.LOST: "the GPU fell off the bus: reboot the machine, and check it with `nvidia-smi -q`",
    Refusal.NOT_SUPPORTED: "see `calotype mig status` for what this GPU can do",
}


class DriverError(CalotypeError):
    """The driver refused; the message holds the operation, the driver's words and the fix."""

    exit_code = ExitCode.GPU_REFUSED

    def __init__(self, refusal: Refusal, operation: str, words: str) -> None:
        self.refusal = refusal
        if refusal is Refusal.NO_DRIVER:
            self.exit_code = ExitCode.NOT_FOUND
        fix = _FIXES.get(refusal)
        super().__init__(f"{operation}: {words}{f'; {fix}' if fix else ''}")


@dataclass(frozen=True)
class Process:
    """A process that uses a GPU."""

    pid: int
    name: str
    used_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.pid} ({self.name})"


@dataclass(frozen=True)
class ComputeInstance:
    """A compute instance of a slice; CUDA_VISIBLE_DEVICES takes its UUID."""

    ci_id: int
    part: ComputePart
    uuid: str | None


def in_order(parts: Iterable[ComputeInstance]) -> tuple[ComputeInstance, ...]:
    """Sorted by placement, in every driver."""
    return tuple(sorted(parts, key=lambda each: each.part))


@dataclass(frozen=True)
class Instance:
    """A current slice of a GPU."""

    gi_id: int
    profile_id: int
    start: int
    compute: tuple[ComputeInstance, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class GpuState:
    """The current state of a MIG-capable GPU."""

    index: int
    name: str
    uuid: str
    pci_device_id: str
    driver_version: str
    model: GpuModel
    """As the driver describes it; otherwise from the table."""
    mode: MigMode
    instances: tuple[Instance, ...] = ()
    processes: tuple[Process, ...] = ()
    """Processes outside of slices."""

    @property
    def layout(self) -> Layout:
        """The current layout."""
        return Layout(self.mode.current, tuple(sorted(self._slice(each) for each in self.instances)))

    @property
    def busy_layout(self) -> Layout:
        """The part of the layout with running processes."""
        busy = {each.start for each in self.instances if each.processes}
        return Layout(True, tuple(part for part in self.layout.slices if part.start in busy))

    def _slice(self, instance: Instance) -> Slice:
        parts = tuple(each.part for each in instance.compute)
        whole = self.model.by_id(instance.profile_id).compute_slices
        usual = len(parts) == 1 and parts[0].size == whole
        return Slice(instance.start, instance.profile_id, None if usual else parts)


class MigDriver(Protocol):
    """A driver of MIG-capable GPUs. GPUs are identified by index."""

    def read(self) -> tuple[GpuState, ...]:
        """The states of all MIG-capable GPUs."""

    def set_mode(self, gpu: int, enabled: bool) -> None:
        """Request MIG mode; the next `read` shows whether it took effect immediately."""

    def reset(self, gpu: int) -> None: ...

    def create(self, gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        """Create a slice at this placement, optionally with its default compute instance; returns its id."""

    def create_compute(self, gpu: int, gi_id: int, part: ComputePart) -> int: ...

    def destroy_compute(self, gpu: int, gi_id: int, ci_id: int) -> None: ...

    def destroy(self, gpu: int, gi_id: int) -> None: ...


def gpu_at(driver: MigDriver, index: int) -> GpuState:
    """The current state of one GPU."""
    states = driver.read()
    for state in states:
        if state.index == index:
            return state
    present = ", ".join(f"{state.index} ({state.name})" for state in states)
    raise NotFoundError(f"no MIG-capable GPU {index}; there are: {present or 'none'}")
