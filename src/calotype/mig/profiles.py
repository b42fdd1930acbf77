"""GPUs that can be cut into slices, and the shapes each offers: a typed view of `gpus.json`.

A slice takes a run of memory slices from one of a few starts, and so many compute slices. Knows nothing of
which GPU is in this machine: a live driver describes its own GPU with the same types, and its answer wins.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from calotype.core.errors import NotFoundError, Problem, RequestError, did_you_mean

GIB = 2**30
# The smallest share of its named size that a listed slice has: 16.00 GiB in 1g.18gb are 0.954 of 18 GB.
_NAMED_SHARE = 0.95


@dataclass(frozen=True)
class Profile:
    """One shape of slice. None means that nobody has published the figure."""

    name: str
    profile_id: int
    """What nvidia-smi calls it on this GPU; another GPU may use the number for another shape."""
    compute_slices: int
    memory_slices: int
    max_instances: int
    starts: tuple[int, ...]
    """Memory slices at which it may begin."""
    memory_gib: float | None = None
    sms: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg_engines: int | None = None
    ofa_engines: int | None = None
    uncertain: tuple[str, ...] = ()
    """Fields that were inferred from a sister card."""

    @property
    def memory_bytes(self) -> int:
        """As listed, or what the name promises less what the driver has always kept of it."""
        if self.memory_gib is not None:
            return int(self.memory_gib * GIB)
        return int(float(self.name.split(".")[1].split("gb")[0]) * 1e9 * _NAMED_SHARE)

    @property
    def plain_name(self) -> str:
        """The name without media or graphics suffix, as compute instances are listed."""
        return self.name.split("+")[0].removesuffix("-me")

    @property
    def has_media(self) -> bool:
        """Whether it can do every kind of media work: decoding, JPEG and optical flow."""
        return bool(self.decoders and self.jpeg_engines and self.ofa_engines)

    def taken(self, start: int) -> range:
        """The memory slices it takes when it begins at `start`."""
        return range(start, start + self.memory_slices)


@dataclass(frozen=True)
class GpuModel:
    """One kind of GPU and the shapes it offers."""

    name: str
    memory_slices: int
    compute_slices: int
    compute_capability: str
    pci_device_ids: tuple[str, ...]
    profiles: tuple[Profile, ...]

    @cached_property
    def whole(self) -> Profile:
        """The shape that takes everything."""
        return max(self.profiles, key=lambda p: (p.memory_slices, p.compute_slices, -len(p.name)))

    @property
    def mode_survives_reboot(self) -> bool:
        """Ampere remembers the mode on the card and needs a reset to change it; later ones neither."""
        return self.compute_capability.startswith("8.")

    def profile(self, text: str) -> Profile:
        """The shape called `text`: a name, or the number nvidia-smi has for it on this GPU."""
        wanted = text.strip().lower().removeprefix("mig ").strip()
        for profile in self.profiles:
            if wanted in (profile.name, str(profile.profile_id)):
                return profile
        raise RequestError([Problem("profile", self._unknown(wanted), text)])

    def by_id(self, profile_id: int) -> Profile:
        return self.profile(str(profile_id))

    def _unknown(self, wanted: str) -> str:
        if wanted.isdigit():
            known = ", ".join(f"{p.profile_id} ({p.name})" for p in self.profiles)
            return f"{self.name} has no profile number {wanted}; it has {known}"
        near = did_you_mean(wanted, (p.name for p in self.profiles))
        others = [name for name, gpu in table().items() if wanted in (p.name for p in gpu.profiles)]
        elsewhere = f" ({', '.join(others)} has it)" if others else ""
        return f"{self.name} has no profile {wanted!r}{elsewhere}; {near}"


@cache
def table() -> Mapping[str, GpuModel]:
    """Every GPU in `gpus.json` by name."""
    raw = json.loads((files(__package__) / "gpus.json").read_text("utf-8"))
    return {name: _model(name, entry) for name, entry in raw["gpus"].items()}


def model_named(name: str) -> GpuModel:
    """The GPU of that name in the table."""
    found = {known.lower(): gpu for known, gpu in table().items()}.get(name.strip().lower())
    if found is None:
        raise NotFoundError(f"no GPU {name!r} in the table; {did_you_mean(name, table())}")
    return found


def model_of_device(pci_device_id: str) -> GpuModel | None:
    """The table's GPU for the number a card has on its bus, for instance 0x20B510DE."""
    wanted = pci_device_id.upper().removeprefix("0X")
    numbers = (
        (gpu, known.upper().removeprefix("0X")) for gpu in table().values() for known in gpu.pci_device_ids
    )
    return next((gpu for gpu, known in numbers if known == wanted), None)


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
