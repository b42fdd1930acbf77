"""What the doctor looks at and what it says: the types alone."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from calotype.core.fingerprint import Fingerprint
from calotype.core.hardware import Disk, GpuSurvey, Memory
from calotype.core.toolchain import Toolchain

if TYPE_CHECKING:
    # The doctor has to speak even where torch does not load.
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
    """Calotype cannot run until this is put right."""


@dataclass(frozen=True)
class Finding:
    """One thing found, what it means for the user, and what to do about it."""

    level: Level
    topic: str
    found: str
    meaning: str
    fix: str | None = None


@dataclass(frozen=True)
class Facts:
    """Everything the doctor looked at; `torch_trouble` says why `torch` is None."""

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
        """The cards torch can use."""
        devices = self.torch.devices if self.torch else ()
        return tuple(device for device in devices if device.device.startswith("cuda"))


def gibibytes(num_bytes: int | None) -> str:
    """Memory, in the unit memory is built in."""
    return "unknown" if num_bytes is None else f"{num_bytes / GIB:.1f} GiB"


def gigabytes(num_bytes: int | None) -> str:
    """Disk, in the unit disks and downloads are sold in."""
    return "unknown" if num_bytes is None else f"{num_bytes / GB:.1f} GB"
