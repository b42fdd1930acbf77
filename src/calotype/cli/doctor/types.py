"""Types of the doctor: facts and findings."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from calotype.core.fingerprint import Fingerprint
from calotype.core.hardware import Disk, GpuSurvey, Memory
from calotype.core.toolchain import Toolchain

if TYPE_CHECKING:
    # The doctor has to work even if torch does not load.
    from calotype.engine.torch_info import TorchDevice, TorchFacts

GIB = 1024**3
GB = 1000**3


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Works; worth knowing."""
    WARNING = "warning"
    """Something will be slow, be missing or fail."""
    PROBLEM = "problem"
    """Calotype cannot run until this is fixed."""


@dataclass(frozen=True)
class Finding:
    """An observation, what it means for the user, and how to fix it."""

    level: Level
    topic: str
    found: str
    meaning: str
    fix: str | None = None


@dataclass(frozen=True)
class Facts:
    """All collected facts; `torch_trouble` is the reason if `torch` is None."""

    fingerprint: Fingerprint
    memory: Memory
    gpus: GpuSurvey
    toolchain: Toolchain
    disks: tuple[Disk, ...]
    torch: "TorchFacts | None"
    torch_trouble: str | None = None
    visible_devices: str | None = None

    @property
    def cuda_devices(self) -> tuple["TorchDevice", ...]:
        """GPUs that torch can use."""
        devices = self.torch.devices if self.torch else ()
        return tuple(device for device in devices if device.device.startswith("cuda"))


def gibibytes(num_bytes: int | None) -> str:
    """A memory size in GiB."""
    return "unknown" if num_bytes is None else f"{num_bytes / GIB:.1f} GiB"


def gigabytes(num_bytes: int | None) -> str:
    """A disk size in decimal GB, as disks and downloads are labeled."""
    return "unknown" if num_bytes is None else f"{num_bytes / GB:.1f} GB"
