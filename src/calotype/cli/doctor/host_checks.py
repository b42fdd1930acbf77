"""Findings about main memory, processor and disks."""

from collections.abc import Iterator, Sequence

from calotype.cli.doctor.types import GB, GIB, Facts, Finding, Level, gibibytes, gigabytes
from calotype.core.hardware import Disk

_SDXL_LOADS_IN_BYTES = 16 * GIB

# Per folder: the free space that is needed, and what fails with less.
_ROOM_NEEDED = {
    "models": (20 * GB, "An SDXL download will not fit (about 14 GB, plus space to unpack)."),
    "cache": (5 * GB, "Compiled kernels and prepared weights may not fit; they are rebuilt on every run."),
    "output": (1 * GB, "Long runs may stop early for lack of space for their images."),
}
_CHOSEN_BY = {
    "models": "set CALOTYPE_MODELS to a roomier folder",
    "cache": "set CALOTYPE_CACHE to a roomier folder",
    "output": "work in another folder",
}


def findings(facts: Facts) -> Iterator[Finding]:
    yield from _processor(facts)
    yield from _memory(facts)
    yield from _disks(facts.disks)


def _processor(facts: Facts) -> Iterator[Finding]:
    cpu = facts.fingerprint.cpu
    if cpu.num_usable_cores < cpu.num_cores:
        yield Finding(
            Level.NOTE,
            "processor",
            f"Only {cpu.num_usable_cores} of {cpu.num_cores} cores may be used",
            "Work on the CPU, such as preparing training data, runs at that share.",
            "Raise the container's CPU limit or the job's core count if that is too few.",
        )


def _memory(facts: Facts) -> Iterator[Finding]:
    memory = facts.memory
    if memory.available_bytes is not None and memory.available_bytes < _SDXL_LOADS_IN_BYTES:
        limit = f" (the container's limit is {gibibytes(memory.limit_bytes)})" if memory.limit_bytes else ""
        yield Finding(
            Level.NOTE,
            "memory",
            f"{gibibytes(memory.available_bytes)} of main memory available{limit}",
            "SDXL in fp32 needs about 16 GiB to load: use fp16 weights or a smaller model.",
        )


def _disks(disks: Sequence[Disk]) -> Iterator[Finding]:
    short = [finding for disk in disks if (finding := _shortage(disk))]
    yield from short
    if not short:
        room = ", ".join(f"{disk.purpose} ({gigabytes(disk.free_bytes)})" for disk in disks)
        yield Finding(Level.OK, "disk", f"Disk space for {room}", "Enough for an SDXL download.")


def _shortage(disk: Disk) -> Finding | None:
    needed, consequence = _ROOM_NEEDED[disk.purpose]
    change = _CHOSEN_BY[disk.purpose]
    if not disk.writable:
        return Finding(
            Level.WARNING,
            "disk",
            f"The {disk.purpose} folder cannot be written: {disk.path}",
            "Nothing new can be stored there.",
            f"Change its permissions, or {change}.",
        )
    if disk.free_bytes is not None and disk.free_bytes < needed:
        return Finding(
            Level.WARNING,
            "disk",
            f"{gigabytes(disk.free_bytes)} free for {disk.purpose}, less than {needed // GB} GB",
            consequence,
            f"Free some space, or {change}.",
        )
    return None
