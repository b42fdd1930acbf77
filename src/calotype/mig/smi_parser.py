"""Parses nvidia-smi's output about slices: tables by regular expressions, the query as XML.

Column widths changed between drivers, so rows are recognized by their structure.
"""

import re
from dataclasses import dataclass, replace
from xml.etree import ElementTree as ET

from calotype.core.hardware import MigMode
from calotype.mig.driver import Process
from calotype.mig.layout import ComputePart
from calotype.mig.profiles import GpuModel, Profile

_PROFILE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+MIG (?P<name>\S+)\s+(?P<id>\d+)\s+\d+/(?P<total>\d+)\s+(?P<gib>[\d.]+)\s+\w+\s+"
    r"(?P<sm>\d+)\s+(?P<dec>\d+)\s+(?P<enc>\d+)\s+\|"
)
_PROFILE_SECOND = re.compile(r"\|\s+(?P<ce>\d+)\s+(?P<jpeg>\d+)\s+(?P<ofa>\d+)\s+\|")
_PLACEMENT = re.compile(
    r"GPU\s+(?P<gpu>\d+) Profile ID\s+(?P<id>\d+) Placements?\s*: \{(?P<starts>[\d,]+)\}:(?P<size>\d+)"
)
_INSTANCE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+MIG \S+\s+(?P<profile>\d+)\s+(?P<gi>\d+)\s+(?P<start>\d+):(?P<size>\d+)\s+\|"
)
_COMPUTE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+(?P<gi>\d+)\s+MIG \S+\s+(?P<profile>\d+)\*?\s+(?P<ci>\d+)\s+"
    r"(?P<start>\d+):(?P<size>\d+)\s+\|"
)
_DEVICE = re.compile(r"GPU (?P<gpu>\d+): ")
_MIG_DEVICE = re.compile(r"\s+MIG \S+\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>[^)]+)\)")
_CREATED = re.compile(r"Successfully created (?P<what>GPU|compute) instance ID\s+(?P<id>\d+) on GPU")
_MODES = {"Enabled": True, "Disabled": False}


@dataclass(frozen=True)
class QueriedGpu:
    """The output of `nvidia-smi -q -x` for one MIG-capable GPU."""

    index: int
    name: str
    uuid: str
    pci_device_id: str
    driver_version: str
    mode: MigMode
    device_places: dict[int, tuple[int, int]]
    """Index of a MIG device → its GPU instance and compute instance."""
    processes: tuple[tuple[int | None, Process], ...]
    """Each with its GPU instance."""


def parse_query(text: str) -> list[QueriedGpu]:
    """The MIG-capable GPUs; others have no MIG mode."""
    root = ET.fromstring(text)  # noqa: S314 - nvidia-smi's own output, no entities but its DTD's name
    driver = root.findtext("driver_version", "")
    found = []
    for index, gpu in enumerate(root.findall("gpu")):
        current = _MODES.get(gpu.findtext("mig_mode/current_mig", ""))
        if current is None:
            continue
        pending = _MODES.get(gpu.findtext("mig_mode/pending_mig", ""), current)
        found.append(
            QueriedGpu(
                index=index,
                name=gpu.findtext("product_name", ""),
                uuid=gpu.findtext("uuid", ""),
                pci_device_id=gpu.findtext("pci/pci_device_id", ""),
                driver_version=driver,
                mode=MigMode(current, pending),
                device_places={
                    _number(part, "index"): (
                        _number(part, "gpu_instance_id"),
                        _number(part, "compute_instance_id"),
                    )
                    for part in gpu.findall("mig_devices/mig_device")
                },
                processes=tuple(_process(part) for part in gpu.findall("processes/process_info")),
            )
        )
    return found


def _number(part: ET.Element, name: str) -> int:
    return int(part.findtext(name, "-1"))


def _process(part: ET.Element) -> tuple[int | None, Process]:
    instance = part.findtext("gpu_instance_id", "N/A")
    used = re.match(r"(\d+) MiB", part.findtext("used_memory", ""))
    process = Process(
        _number(part, "pid"), part.findtext("process_name", "?"), int(used[1]) * 2**20 if used else None
    )
    return int(instance) if instance.isdigit() else None, process


def parse_profiles(text: str, gpu: int) -> list[Profile]:
    """Parse `mig -lgip`: every profile of one GPU, without placements."""
    found: list[Profile] = []
    is_this_gpu = False
    for line in text.splitlines():
        if first := _PROFILE.match(line):
            is_this_gpu = int(first["gpu"]) == gpu
            if is_this_gpu:
                found.append(_profile(first))
        elif is_this_gpu and (second := _PROFILE_SECOND.match(line)):
            engines = [int(second[name]) for name in ("ce", "jpeg", "ofa")]
            found[-1] = replace(
                found[-1], copy_engines=engines[0], jpeg_engines=engines[1], ofa_engines=engines[2]
            )
    return found


def _profile(row: re.Match[str]) -> Profile:
    return Profile(
        name=row["name"],
        profile_id=int(row["id"]),
        compute_slices=int(row["name"].split("g")[0]),
        memory_slices=0,
        max_instances=int(row["total"]),
        starts=(),
        memory_gib=float(row["gib"]),
        sms=int(row["sm"]) or None,
        decoders=int(row["dec"]),
        encoders=int(row["enc"]),
    )


def with_places(text: str, gpu: int, profiles: list[Profile]) -> list[Profile]:
    """Parse `mig -lgipp`: add the possible placements to the profiles; drops profiles without any."""
    rows = {
        int(row["id"]): row
        for row in map(_PLACEMENT.match, text.splitlines())
        if row and int(row["gpu"]) == gpu
    }
    return [
        replace(
            profile,
            memory_slices=int(rows[profile.profile_id]["size"]),
            starts=tuple(map(int, rows[profile.profile_id]["starts"].split(","))),
        )
        for profile in profiles
        if profile.profile_id in rows
    ]


def live_model(name: str, capability: str, device: str, profiles: list[Profile]) -> GpuModel:
    """A GPU as its driver describes it."""
    whole = max(profiles, key=lambda p: (p.memory_slices, p.compute_slices))
    return GpuModel(
        name=name,
        memory_slices=whole.memory_slices,
        compute_slices=whole.compute_slices,
        compute_capability=capability,
        pci_device_ids=(device,),
        profiles=tuple(profiles),
    )


def parse_instances(text: str, gpu: int) -> list[tuple[int, int, int]]:
    """Parse `mig -lgi`: (GPU instance, profile, start) of each."""
    rows = [row for row in map(_INSTANCE.match, text.splitlines()) if row and int(row["gpu"]) == gpu]
    return [(int(row["gi"]), int(row["profile"]), int(row["start"])) for row in rows]


def parse_compute_instances(text: str, gpu: int) -> list[tuple[int, int, ComputePart]]:
    """Parse `mig -lci`: (GPU instance, compute instance, placement) of each."""
    rows = [row for row in map(_COMPUTE.match, text.splitlines()) if row and int(row["gpu"]) == gpu]
    return [
        (
            int(row["gi"]),
            int(row["ci"]),
            ComputePart(int(row["start"]), int(row["profile"]), int(row["size"])),
        )
        for row in rows
    ]


def parse_uuids(text: str) -> dict[tuple[int, int], str]:
    """Parse `-L`: (GPU, MIG device) → UUID."""
    found: dict[tuple[int, int], str] = {}
    gpu = -1
    for line in text.splitlines():
        if card := _DEVICE.match(line):
            gpu = int(card["gpu"])
        elif part := _MIG_DEVICE.match(line):
            found[gpu, int(part["index"])] = part["uuid"]
    return found


def parse_made(text: str, what: str) -> int | None:
    """The id of the created `GPU` or `compute` instance."""
    return next(
        (int(row["id"]) for row in map(_CREATED.match, text.splitlines()) if row and row["what"] == what),
        None,
    )
