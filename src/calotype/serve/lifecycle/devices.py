"""Which workers a plan's devices mean. Knows nothing of what workers do."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.hardware import GpuSource

Place = tuple[str | None, dict[str, str]]
"""What a worker is told as its device, and what is added to its environment."""


def worker_places(devices: Sequence[str], gpus: GpuSource) -> dict[str, Place]:
    """By a name for people, in order."""
    found: dict[str, Place] = {}
    for device in devices:
        for name, place in _places(device, gpus):
            if name in found:
                raise RequestError([Problem("devices", f"{name!r} is named twice; one worker each", name)])
            found[name] = place
    return found


def _places(device: str, gpus: GpuSource) -> list[tuple[str, Place]]:
    if device == "all":
        return _everything(gpus)
    if device == "auto":
        return [("worker", (None, {}))]
    if device == "cpu" or device.startswith("cuda"):
        return [(device, (device, {}))]
    if device.startswith(("GPU-", "MIG-")):
        return [(device, ("cuda", {"CUDA_VISIBLE_DEVICES": device}))]
    rule = f"{device!r} is no device; cpu, cuda:N, GPU-…, MIG-… and all are"
    raise RequestError([Problem("devices", rule, device)])


def _everything(gpus: GpuSource) -> list[tuple[str, Place]]:
    names: list[str] = []
    for gpu in gpus.survey().gpus:
        slices = [part.uuid for part in gpu.mig_devices if part.uuid]
        names += slices if gpu.mig and gpu.mig.current else [gpu.uuid] if gpu.uuid else []
    if not names:
        raise NotFoundError(
            "devices: all means every GPU and slice, and none was found; see `calotype doctor`"
        )
    return [(name, ("cuda", {"CUDA_VISIBLE_DEVICES": name})) for name in names]
