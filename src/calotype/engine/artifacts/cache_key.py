"""The cache key of an engine: everything that decides what is compiled. Equal keys share artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from platform import processor
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from calotype.core.fingerprint import package_versions
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.device import device_name, precision_name
from calotype.engine.presets import pass_names
from calotype.models.architecture import Architecture
from calotype.version import VERSION

FORMAT = 3
"""Incremented when older artifacts can no longer be read or used."""
KEY_LENGTH = 16


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Software(Frozen):
    """The versions that determine compiled code."""

    calotype: str
    torch: str | None
    triton: str | None
    cuda: str | None


class Device(Frozen):
    """A kind of device."""

    name: str
    """'cpu' and a short digest of its instruction sets, or the GPU's name."""
    capability: str | None
    """A GPU's compute capability."""


class CacheKey(Frozen):
    """Everything that determines what is compiled."""

    network: str
    """sha256 of the configurations of the model's parts; independent of weights."""
    preset: str
    passes: tuple[str, ...]
    shapes: tuple[Shape, ...]
    precision: str
    device: Device
    software: Software

    @property
    def key(self) -> str:
        values = {"format": FORMAT, **self.model_dump(mode="json")}
        return _digest(values)[:KEY_LENGTH]

    def serves(self, other: CacheKey) -> bool:
        """Whether the artifacts of this key fit `other`: all fields but the shapes are equal.

        Each shape is compiled by itself, so additional shapes do no harm.
        """
        return self.model_copy(update={"shapes": ()}) == other.model_copy(update={"shapes": ()})


def cache_key_of(
    architecture: Architecture,
    *,
    preset: str,
    shapes: Iterable[Shape],
    dtype: torch.dtype,
    device: torch.device,
) -> CacheKey:
    """The cache key of a model on this machine."""
    return CacheKey(
        network=_digest({part: _settings(config) for part, config in architecture.parts().items()}),
        preset=preset,
        passes=pass_names(preset, device.type),
        shapes=tuple(sorted(set(shapes))),
        precision=precision_name(dtype),
        device=_device(device),
        software=current_software(),
    )


def current_software() -> Software:
    versions = package_versions()
    return Software(
        calotype=VERSION, torch=versions["torch"], triton=versions["triton"], cuda=torch.version.cuda
    )


def current_devices() -> list[Device]:
    """Every kind of device on this machine that an engine can run on."""
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [_device(device) for device in (torch.device("cpu"), *gpus)]


def _device(device: torch.device) -> Device:
    if device.type == "cuda":
        capability = ".".join(str(number) for number in torch.cuda.get_device_capability(device))
        return Device(name=device_name(device), capability=capability)
    return Device(name=f"cpu {_cpu_features()}", capability=None)


@cache
def _cpu_features() -> str:
    """Digest of the CPU's instruction sets: code is compiled for exactly these."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text("utf-8").splitlines() if about.exists() else []
    known = next((line for line in lines if line.startswith(("flags", "Features"))), processor())
    return _digest(sorted(known.split()))[:8]


def _settings(config: Any) -> dict[str, Any]:
    """The configuration without metadata about its writer."""
    return {key: value for key, value in config.items() if key == "_class_name" or not key.startswith("_")}


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
