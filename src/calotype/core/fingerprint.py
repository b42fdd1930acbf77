"""Fingerprint of the software and hardware behind a result, so that results can be compared.

It holds nothing personal and nothing volatile: no host or user name, folder, serial number or free memory.
Of torch it reads only the version; `calotype.engine.torch_info` adds the rest.
"""

import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from calotype.core.hardware import Cpu, Gpu, GpuSurvey, read_cpu, read_memory
from calotype.core.nvml import NvmlGpus
from calotype.core.process import command_output
from calotype.version import VERSION

# Each package with its distribution names; the triton builds of torch have other names.
_PACKAGES = {
    "diffusers": ("diffusers",),
    "peft": ("peft",),
    "safetensors": ("safetensors",),
    "tokenizers": ("tokenizers",),
    "torch": ("torch",),
    "torchao": ("torchao",),
    "transformers": ("transformers",),
    "triton": ("triton", "pytorch-triton", "triton-rocm"),
}


@dataclass(frozen=True)
class GpuModel:
    """The model of a GPU, without data that identifies the individual card."""

    name: str | None
    memory_total_bytes: int | None
    num_sms: int | None
    compute_capability: str | None
    mig_enabled: bool | None
    mig_devices: tuple[str | None, ...]
    power_limit_watts: float | None = None
    """Cards of one model with different limits have different speeds."""


@dataclass(frozen=True)
class Fingerprint:
    """Software and hardware behind a result."""

    calotype: str
    commit: str | None
    """Commit of the checkout; None for an installed package."""
    modified: bool | None
    """Whether tracked files differ from that commit."""
    python: str
    packages: Mapping[str, str | None]
    operating_system: str
    kernel: str
    cpu: Cpu
    memory_total_bytes: int | None
    driver: str | None
    driver_cuda: str | None
    gpus: tuple[GpuModel, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        return asdict(self)


def fingerprint(survey: GpuSurvey | None = None) -> Fingerprint:
    """Describe this machine; pass a `survey` if the driver was queried already."""
    cards = survey if survey is not None else NvmlGpus().survey()
    commit, modified = git_state(Path(__file__).resolve().parents[1])
    return Fingerprint(
        calotype=VERSION,
        commit=commit,
        modified=modified,
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        packages=package_versions(),
        operating_system=_operating_system(),
        # The suffix after the version often names a provider or a host.
        kernel=f"{platform.system()} {re.split('[^0-9.]', platform.release())[0]}",
        cpu=read_cpu(),
        memory_total_bytes=read_memory().total_bytes,
        driver=cards.driver,
        driver_cuda=cards.driver_cuda,
        gpus=tuple(_model(gpu) for gpu in cards.gpus),
    )


def package_versions() -> dict[str, str | None]:
    """Installed versions from package metadata, without imports."""
    return {name: _first_version(published) for name, published in _PACKAGES.items()}


def git_state(package: Path) -> tuple[str | None, bool | None]:
    """Commit of the checkout that contains the source `package`, and whether it is modified.

    A package installed inside another repository must not report the commit of that repository.
    """
    root = command_output(["git", "rev-parse", "--show-toplevel"], folder=package)
    if root is None or Path(root).resolve() / "src" / package.name != package:
        return None, None
    commit = command_output(["git", "rev-parse", "--verify", "HEAD"], folder=package)
    if commit is None:
        return None, None
    changes = command_output(["git", "status", "--porcelain", "--untracked-files=no"], folder=package)
    return commit, None if changes is None else bool(changes)


def _first_version(published: tuple[str, ...]) -> str | None:
    for name in published:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _model(gpu: Gpu) -> GpuModel:
    return GpuModel(
        name=gpu.name,
        memory_total_bytes=gpu.memory_total_bytes,
        num_sms=gpu.num_sms,
        compute_capability=gpu.compute_capability,
        mig_enabled=gpu.mig.current if gpu.mig else None,
        mig_devices=tuple(part.name for part in gpu.mig_devices),
        power_limit_watts=gpu.power_limit_watts,
    )
