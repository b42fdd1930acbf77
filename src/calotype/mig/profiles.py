"""MIG-capable GPUs and their profiles: a typed view of `gpus.json`.

A slice takes consecutive memory slices from one of a few starts, and a number of compute slices. A live
driver describes its GPU with the same types, and takes precedence over the table.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from calotype.core.errors import NotFoundError, Problem, RequestError, did_you_mean

GIB = 2**30
# The smallest share of a listed slice's size in its name: 16.00 GiB in 1g.18gb are 0.954 of 18 GB.
_NAMED_SHARE = 0.95


@dataclass(frozen=True)
class Profile:
    """One profile of a slice. None means that the figure is not published."""

    name: str
    profile_id: int
    """nvidia-smi's id on this GPU; another GPU may use the id for another profile."""
    compute_slices: int
    memory_slices: int
    max_instances: int
    starts: tuple[int, ...]
    """Memory slices at which it may start."""
    memory_gib: float | None = None
    sms: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg_engines: int | None = None
    ofa_engines: int | None = None
    uncertain: tuple[str, ...] = ()
    """Fields that were inferred from a related GPU."""

    @property
    def memory_bytes(self) -> int:
        """As listed, or the size in the name less the share that the driver reserves."""
        if self.memory_gib is not None:
            return int(self.memory_gib * GIB)
        return int(float(self.name.split(".")[1].split("gb")[0]) * 1e9 * _NAMED_SHARE)

    @property
    def plain_name(self) -> str:
        """The name without media or graphics suffix, as compute instances are listed."""
        return self.name.split("+")[0].removesuffix("-me")

    @property
    def has_media(self) -> bool:
        """Whether it has every kind of media engine: decoding, JPEG and optical flow."""
        return bool(self.decoders and self.jpeg_engines and self.ofa_engines)

    def taken(self, start: int) -> range:
        """The memory slices of a slice that starts at `start`."""
        return range(start, start + self.memory_slices)


@dataclass(frozen=True)
class GpuModel:
    """One GPU model and its profiles."""

    name: str
    memory_slices: int
    compute_slices: int
    compute_capability: str
    pci_device_ids: tuple[str, ...]
    profiles: tuple[Profile, ...]

    @cached_property
    def whole(self) -> Profile:
        """The profile of the whole GPU."""
        return max(self.profiles, key=lambda p: (p.memory_slices, p.compute_slices, -len(p.name)))

    @property
    def mode_survives_reboot(self) -> bool:
        """Ampere stores the mode on the GPU and needs a reset to change it; later GPUs do neither."""
        return self.compute_capability.startswith("8.")

    def profile(self, text: str) -> Profile:
        """The profile `text`: a name, or nvidia-smi's id on this GPU."""
        requested = text.strip().lower().removeprefix("mig ").strip()
        for profile in self.profiles:
            if requested in (profile.name, str(profile.profile_id)):
                return profile
        raise RequestError([Problem("profile", self._unknown(requested), text)])

    def by_id(self, profile_id: int) -> Profile:
        return self.profile(str(profile_id))

    def _unknown(self, requested: str) -> str:
        if requested.isdigit():
            known = ", ".join(f"{p.profile_id} ({p.name})" for p in self.profiles)
            return f"{self.name} has no profile number {requested}; it has {known}"
        near = did_you_mean(requested, (p.name for p in self.profiles))
        others = [name for name, gpu in table().items() if requested in (p.name for p in gpu.profiles)]
        other_gpus = f" ({', '.join(others)} has it)" if others else ""
        return f"{self.name} has no profile {requested!r}{other_gpus}; {near}"


@cache
def table() -> Mapping[str, GpuModel]:
    """All GPUs in `gpus.json` by name."""
    raw = json.loads((files(__package__) / "gpus.json").read_text("utf-8"))
    return {name: _model(name, entry) for name, entry in raw["gpus"].items()}


def model_named(name: str) -> GpuModel:
    """The table's GPU of this name."""
    found = {known.lower(): gpu for known, gpu in table().items()}.get(name.strip().lower())
    if found is None:
        raise NotFoundError(f"no GPU {name!r} in the table; {did_you_mean(name, table())}")
    return found


def model_of_device(pci_device_id: str) -> GpuModel | None:
    """The table's GPU for a PCI device id, for instance 0x20B510DE."""
    requested = pci_device_id.upper().removeprefix("0X")
    numbers = (
        (gpu, known.upper().removeprefix("0X")) for gpu in table().values() for known in gpu.pci_device_ids
    )
    return next((gpu for gpu, known in numbers if known == requested), None)


def _model(name: str, entry: Mapping[str, Any]) -> GpuModel:
    return GpuModel(
        name=name,
        memory_slices=entry["memory_slices"],
        compute_slices=entry["compute_slices"],
        compute_capability=entry["compute_capability"],
        pci_device_ids=tuple(entry["pci_device_ids"]),
        profiles=tuple(_profile(row) for row in entry["profiles"]),
    )


def _profile(row: Mapping[str, Any]) -> Profile:
    values = {field.name: row[field.name] for field in fields(Profile) if field.name in row}
    values["starts"] = tuple(row["starts"])
    values["uncertain"] = tuple(row.get("uncertain", ()))
    if row["memory_gib"] is not None:
        values["memory_gib"] = float(row["memory_gib"])
    return Profile(**values)
