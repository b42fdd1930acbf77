"""What can be asked of a GPU's driver about slices, whoever the driver is: NVML, nvidia-smi or the
simulated one.

States are plain facts, and every call either does its one thing or raises a `DriverError`. Knows nothing of
plans.
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
    """Why a driver did not do what it was asked."""

    NO_DRIVER = "no driver"
    NO_PERMISSION = "no permission"
    IN_USE = "in use"
    NO_ROOM = "insufficient resources"
    LOST = "GPU lost"
    NOT_SUPPORTED = "not supported"
    NOT_FOUND = "not found"
    OTHER = "other"


_FIXES = {
    Refusal.NO_DRIVER: "install and load the NVIDIA driver, or name another with --driver",
    Refusal.NO_PERMISSION: "run it as root (sudo)",
    Refusal.IN_USE: "stop what uses it (nvidia-persistenced, DCGM and Xorg hold cards too) and try again",
    Refusal.NO_ROOM: "see what fits with `calotype mig plan`",
    Refusal.LOST: "the card fell off the bus: reboot the machine, and check it with `nvidia-smi -q`",
    Refusal.NOT_SUPPORTED: "see `calotype mig status` for what this GPU can do",
}


class DriverError(CalotypeError):
    """The driver refused; carries its words, what was asked, and the fix."""

    exit_code = ExitCode.GPU_REFUSED

    def __init__(self, refusal: Refusal, asked: str, words: str) -> None:
        self.refusal = refusal
        if refusal is Refusal.NO_DRIVER:
            self.exit_code = ExitCode.NOT_FOUND
        fix = _FIXES.get(refusal)
        super().__init__(f"{asked}: {words}{f'; {fix}' if fix else ''}")


@dataclass(frozen=True)
class Process:
    """A process that holds something on a GPU."""

    pid: int
    name: str
    used_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.pid} ({self.name})"


@dataclass(frozen=True)
class ComputeInstance:
    """A part of a slice that work runs in; its UUID is what CUDA_VISIBLE_DEVICES takes."""

    ci_id: int
    part: ComputePart
    uuid: str | None


def in_order(parts: Iterable[ComputeInstance]) -> tuple[ComputeInstance, ...]:
    """From left to right, as every driver lists them here."""
    return tuple(sorted(parts, key=lambda each: each.part))


@dataclass(frozen=True)
class Instance:
    """A slice as it is on the GPU now."""

    gi_id: int
    profile_id: int
    start: int
    compute: tuple[ComputeInstance, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class GpuState:
    """A GPU that can be cut, as it is now."""

    index: int
    name: str
    uuid: str
    pci_device_id: str
    driver_version: str
    model: GpuModel
    """As the driver describes it; from the table where it does not."""
    mode: MigMode
    instances: tuple[Instance, ...] = ()
    processes: tuple[Process, ...] = ()
    """Those that are in no slice."""

    @property
    def layout(self) -> Layout:
        """What the GPU is cut into now."""
        return Layout(self.mode.current, tuple(sorted(self._slice(each) for each in self.instances)))

    @property
    def busy_layout(self) -> Layout:
        """The part of it that somebody uses."""
        held = {each.start for each in self.instances if each.processes}
        return Layout(True, tuple(part for part in self.layout.slices if part.start in held))

    def _slice(self, instance: Instance) -> Slice:
        parts = tuple(each.part for each in instance.compute)
        whole = self.model.by_id(instance.profile_id).compute_slices
        usual = len(parts) == 1 and parts[0].size == whole
        return Slice(instance.start, instance.profile_id, None if usual else parts)


class MigDriver(Protocol):
    """A driver of GPUs that can be cut. GPUs are named by their index."""

    def read(self) -> tuple[GpuState, ...]:
        """Every GPU that can be cut."""

    def set_mode(self, gpu: int, enabled: bool) -> None:
        """Ask for MIG mode; whether it came about at once is in the next `read`."""

    def reset(self, gpu: int) -> None: ...

    def create(self, gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        """Make a slice at this place, with its usual compute instance if wanted; its id."""

    def create_compute(self, gpu: int, gi_id: int, part: ComputePart) -> int: ...

    def destroy_compute(self, gpu: int, gi_id: int, ci_id: int) -> None: ...

    def destroy(self, gpu: int, gi_id: int) -> None: ...


def gpu_at(driver: MigDriver, index: int) -> GpuState:
    """One GPU as it is now."""
    states = driver.read()
    for state in states:
        if state.index == index:
            return state
    there = ", ".join(f"{state.index} ({state.name})" for state in states)
    raise NotFoundError(f"no GPU {index} that can be cut into slices; there are: {there or 'none'}")
