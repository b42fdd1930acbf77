"""MIG layouts: slices with their placements, and the rules they must satisfy."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calotype.core.errors import DoesNotFitError
from calotype.mig.profiles import GpuModel, Profile

# Engines cannot be shared between slices.
_ENGINES = ("decoders", "encoders", "jpeg_engines", "ofa_engines")


@dataclass(frozen=True, order=True)
class ComputePart:
    """A compute instance of a slice: its profile id and its compute slices."""

    start: int
    profile_id: int
    size: int


@dataclass(frozen=True, order=True)
class Slice:
    """One GPU instance: a profile at a placement."""

    start: int
    profile_id: int
    parts: tuple[ComputePart, ...] | None = None
    """Its compute instances; None for the default single one over the whole slice."""


@dataclass(frozen=True)
class Layout:
    """The layout of a GPU: whether MIG mode is on, and its slices from left to right."""

    enabled: bool
    slices: tuple[Slice, ...] = ()

    @staticmethod
    def of(slices: Iterable[Slice]) -> "Layout":
        return Layout(True, tuple(sorted(slices)))


def usual_part(gpu: GpuModel, profile: Profile) -> ComputePart:
    """The single compute instance over a whole slice, with the ids that all drivers have used so far."""
    doubled = profile.compute_slices == 1 and profile.memory_slices == 2 and gpu.compute_capability != "8.0"
    number = 7 if doubled else {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[profile.compute_slices]
    return ComputePart(0, number, profile.compute_slices)


OFF = Layout(False)
EMPTY = Layout(True)


def counted(profiles: Iterable[Profile]) -> str:
    """`3× 2g.20gb + 1× 1g.10gb+me`, largest first."""
    counts = Counter(
        p.name for p in sorted(profiles, key=lambda p: (-p.memory_slices, -p.compute_slices, p.name))
    )
    return " + ".join(f"{count}× {name}" for name, count in counts.items()) or "no slices"


def profiles_of(gpu: GpuModel, layout: Layout) -> list[Profile]:
    return [gpu.by_id(part.profile_id) for part in layout.slices]


def engine_shortage(gpu: GpuModel, profiles: Iterable[Profile]) -> str | None:
    """The first kind of media engine that the GPU has too few of for these slices."""
    wanted = list(profiles)
    for engine in _ENGINES:
        there: int | None = getattr(gpu.whole, engine)
        needed: int = sum(getattr(profile, engine) or 0 for profile in wanted)
        if there is not None and needed > there:
            return f"they need {needed} {engine.replace('_', ' ')} and {gpu.name} has {there}"
    return None


def broken_rules(gpu: GpuModel, layout: Layout) -> Iterator[str]:
    """Every rule that the layout breaks on this GPU."""
    profiles = profiles_of(gpu, layout)
    holder: dict[int, Profile] = {}
    for part, profile in zip(layout.slices, profiles, strict=True):
        if part.start not in profile.starts:
            places = ", ".join(map(str, profile.starts))
            yield f"{profile.name} cannot start at memory slice {part.start}; it can at {places}"
        for place in profile.taken(part.start):
            if place in holder:
                yield f"{profile.name} at {part.start} and {holder[place].name} share memory slice {place}"
                break
        holder |= dict.fromkeys(profile.taken(part.start), profile)
    for name, count in Counter(p.name for p in profiles).items():
        most = gpu.profile(name).max_instances
        if count > most:
            yield f"{count}× {name}: {gpu.name} allows {most}"
    shortage = engine_shortage(gpu, profiles)
    if shortage:
        yield shortage
    if layout.slices and not layout.enabled:
        yield "slices need MIG mode enabled"


def check(gpu: GpuModel, layout: Layout) -> Layout:
    """Return the layout, or raise with every rule it breaks."""
    broken = list(broken_rules(gpu, layout))
    if broken:
        raise DoesNotFitError(f"{gpu.name} does not support this layout: {'; '.join(broken)}")
    return layout
