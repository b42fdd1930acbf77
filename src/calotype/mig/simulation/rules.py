"""The simulated driver's operations and refusals, with NVML's own error numbers.

Every function is one driver call: it is counted, may fail as scheduled, and otherwise follows the rules
observed in the real driver.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from calotype.mig.layout import Layout, Slice, broken_rules, usual_part
from calotype.mig.profiles import Profile
from calotype.mig.simulation.fake_host import FakeGpu, FakeHost, FakeInstance, Part

# Compute profile id → size in compute slices; 7 is the single slice of a double-memory profile.
COMPUTE_SIZES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 7: 1}


class Code(IntEnum):
    """NVML's return values."""

    SUCCESS = 0
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    GPU_IS_LOST = 15
    IN_USE = 19
    INSUFFICIENT_RESOURCES = 23
    UNKNOWN = 999


WORDS = {
    Code.INVALID_ARGUMENT: "Invalid Argument",
    Code.NOT_SUPPORTED: "Not Supported",
    Code.NO_PERMISSION: "Insufficient Permissions",
    Code.NOT_FOUND: "Not Found",
    Code.DRIVER_NOT_LOADED: "Driver Not Loaded",
    Code.GPU_IS_LOST: "GPU is lost",
    Code.IN_USE: "In use by another client",
    Code.INSUFFICIENT_RESOURCES: "Insufficient Resources",
    Code.UNKNOWN: "Unknown Error",
}


class SimulatedRefusalError(Exception):
    """The simulated driver refused a call."""

    def __init__(self, code: int) -> None:
        self.code = Code(code)
        super().__init__(WORDS[self.code])


@contextmanager
def driver_call(host: FakeHost) -> Iterator[None]:
    """One call: counts it, and fails early or late as scheduled."""
    host.calls += 1
    failing = host.calls in host.fail_at
    if not host.loaded:
        raise SimulatedRefusalError(Code.DRIVER_NOT_LOADED)
    if failing and not host.fail_late:
        raise SimulatedRefusalError(host.fail_code)
    yield
    if failing:
        raise SimulatedRefusalError(host.fail_code)


def look(host: FakeHost, index: int) -> FakeGpu:
    """The GPU, for reading."""
    if not 0 <= index < len(host.cards):
        raise SimulatedRefusalError(Code.NOT_FOUND)
    if host.cards[index].lost:
        raise SimulatedRefusalError(Code.GPU_IS_LOST)
    return host.cards[index]


def _writable(host: FakeHost, index: int) -> FakeGpu:
    """The GPU, for changing."""
    card = look(host, index)
    if not host.is_root:
        raise SimulatedRefusalError(Code.NO_PERMISSION)
    return card


def set_mode(host: FakeHost, index: int, enabled: bool) -> Code:
    """Request the mode; the returned status says whether it took effect, and is not a refusal."""
    with driver_call(host):
        card = _writable(host, index)
        if card.cuts and not enabled:
            raise SimulatedRefusalError(Code.IN_USE)
        card.pending = enabled
        status = Code.SUCCESS
        if card.pending != card.current:
            # A virtual machine cannot reset its GPU, and a GPU in use cannot be reset at all.
            status = (
                Code.NOT_SUPPORTED if card.gpu.mode_survives_reboot and card.passthrough else Code.SUCCESS
            )
            status = Code.IN_USE if card.holders else status
        if status is Code.SUCCESS:
            card.current = enabled
        host.log.append(f"GPU {index}: mode {'on' if enabled else 'off'}, {status.name}")
    return status


def reset(host: FakeHost, index: int) -> None:
    """Reset: all slices are lost, and the pending mode takes effect."""
    with driver_call(host):
        card = _writable(host, index)
        if card.passthrough:
            raise SimulatedRefusalError(Code.NOT_SUPPORTED)
        if card.holders:
            raise SimulatedRefusalError(Code.IN_USE)
        card.current, card.cuts = card.pending, []
        host.log.append(f"GPU {index}: reset")


def reboot(host: FakeHost) -> None:
    """Reboot: no slice survives. Ampere keeps its mode, later GPUs do not."""
    for card in host.cards:
        card.cuts, card.holders, card.lost = [], [], False
        card.pending = card.pending and card.gpu.mode_survives_reboot
        card.current = card.pending
    host.log.append("reboot")


def create_gpu_instance(host: FakeHost, index: int, profile_id: int, start: int | None) -> FakeInstance:
    with driver_call(host):
        card = _writable(host, index)
        if not card.current:
            raise SimulatedRefusalError(Code.NOT_SUPPORTED)
        profile = next((p for p in card.gpu.profiles if p.profile_id == profile_id), None)
        if profile is None or (start is not None and start not in profile.starts):
            raise SimulatedRefusalError(Code.INVALID_ARGUMENT)
        if start is None:
            start = driver_choice(card, profile)
            host.log.append(f"GPU {index}: {profile.name} put at {start} by an inferred rule")
        if start is None or not _is_free(card, profile, start):
            raise SimulatedRefusalError(Code.INSUFFICIENT_RESOURCES)
        cut = FakeInstance(instance_id(card, profile, start), profile_id, start)
        card.cuts.append(cut)
        host.log.append(f"GPU {index}: made {profile.name} at {start}")
    return cut


def instance_id(card: FakeGpu, profile: Profile, start: int) -> int:
    """Ids form a tree: 0 is the whole GPU, then its halves, their halves, and so on."""
    num = card.gpu.memory_slices // profile.memory_slices
    place = start // profile.memory_slices
    if card.mirrored and num > 1:
        place = (place + num // 2) % num
    return num - 1 + place


def driver_choice(card: FakeGpu, profile: Profile) -> int | None:
    """The driver's own placement: the one that blocks the fewest other placements, then the leftmost.

    Inferred: two captured transcripts differ (two 3g on one A100, three 1g with double memory on a GH200).
    """
    gpu = card.gpu
    possible = [(p, s) for p in gpu.profiles for s in p.starts if _is_free(card, p, s)]

    def num_blocked(start: int) -> int:
        taken = set(profile.taken(start))
        return sum(not taken.isdisjoint(p.taken(s)) for p, s in possible)

    return min((s for p, s in possible if p == profile), key=lambda s: (num_blocked(s), s), default=None)


def _is_free(card: FakeGpu, profile: Profile, start: int) -> bool:
    slices = [Slice(cut.start, cut.profile_id) for cut in card.cuts]
    return not any(broken_rules(card.gpu, Layout.of([*slices, Slice(start, profile.profile_id)])))


def create_compute_instance(
    host: FakeHost, index: int, gi: int, profile_id: int | None = None, start: int | None = None
) -> Part:
    """Without a profile the one over the whole slice; without a start the leftmost that is free."""
    with driver_call(host):
        card = _writable(host, index)
        cut = _cut(card, gi)
        usual = usual_part(card.gpu, card.gpu.by_id(cut.profile_id)).profile_id
        number = usual if profile_id is None else profile_id
        size, room = COMPUTE_SIZES.get(number), card.gpu.by_id(cut.profile_id).compute_slices
        if size is None or size > room:
            raise SimulatedRefusalError(Code.INVALID_ARGUMENT)
        taken = {place for part in cut.parts for place in range(part.start, part.start + part.size)}
        starts = range(room - size + 1) if start is None else [start]
        fit = [s for s in starts if s + size <= room and taken.isdisjoint(range(s, s + size))]
        if not fit:
            raise SimulatedRefusalError(Code.INSUFFICIENT_RESOURCES)
        used = {part.ci for part in cut.parts}
        part = Part(next(i for i in range(room) if i not in used), number, fit[0], size)
        cut.parts.append(part)
        host.log.append(f"GPU {index}: made compute instance {part.ci} in {gi}")
    return part


def destroy_compute_instance(host: FakeHost, index: int, gi: int, ci: int) -> None:
    with driver_call(host):
        card = _writable(host, index)
        cut = _cut(card, gi)
        part = next((each for each in cut.parts if each.ci == ci), None)
        if part is None:
            raise SimulatedRefusalError(Code.NOT_FOUND)
        if any(holder.gi == gi for holder in card.holders):
            raise SimulatedRefusalError(Code.IN_USE)
        cut.parts.remove(part)
        host.log.append(f"GPU {index}: destroyed compute instance {ci} in {gi}")


def destroy_gpu_instance(host: FakeHost, index: int, gi: int) -> None:
    with driver_call(host):
        card = _writable(host, index)
        cut = _cut(card, gi)
        if cut.parts or any(holder.gi == gi for holder in card.holders):
            raise SimulatedRefusalError(Code.IN_USE)
        card.cuts.remove(cut)
        host.log.append(f"GPU {index}: destroyed {card.gpu.by_id(cut.profile_id).name} at {cut.start}")


def _cut(card: FakeGpu, gi: int) -> FakeInstance:
    found = next((cut for cut in card.cuts if cut.gi == gi), None)
    if found is None:
        raise SimulatedRefusalError(Code.NOT_FOUND)
    return found
