"""Which sets of slices fit on a GPU, by looking at every way there is to cut it.

A GPU has a few thousand layouts at most, so that every question is answered by looking at all of them:
nothing is guessed, and nothing is missed. Knows nothing of what runs in a slice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from calotype.mig.layout import Layout, Slice, counted, engine_shortage
from calotype.mig.profiles import GpuModel, Profile, table

Multiset = tuple[int, ...]
"""Profile numbers, sorted; how often each is there matters and where it stands does not."""


def multiset_of(layout: Layout) -> Multiset:
    return tuple(sorted(part.profile_id for part in layout.slices))


@cache
def layouts_by_multiset(gpu: GpuModel) -> Mapping[Multiset, tuple[Layout, ...]]:
    """Every way to cut the GPU, under the set of slices it gives; leftmost starts first."""
    found: dict[Multiset, list[Layout]] = {}
    for slices in _cuts(gpu, 0, (), Counter()):
        if engine_shortage(gpu, (gpu.by_id(part.profile_id) for part in slices)) is None:
            layout = Layout(True, slices)
            found.setdefault(multiset_of(layout), []).append(layout)
    return {
        bag: tuple(sorted(layouts, key=lambda each: [part.start for part in each.slices]))
        for bag, layouts in found.items()
    }


def _cuts(
    gpu: GpuModel, place: int, so_far: tuple[Slice, ...], used: Counter[int]
) -> Iterator[tuple[Slice, ...]]:
    """From the memory slice `place` rightwards: leave it empty, or begin there with whatever may."""
    if place >= gpu.memory_slices:
        yield so_far
        return
    yield from _cuts(gpu, place + 1, so_far, used)
    for profile in gpu.profiles:
        number = profile.profile_id
        if place in profile.starts and used[number] < profile.max_instances:
            part = Slice(place, number)
            yield from _cuts(gpu, place + profile.memory_slices, (*so_far, part), used + Counter([number]))


def fitting(gpu: GpuModel, profiles: Iterable[Profile]) -> tuple[Layout, ...]:
    """Every place these slices can have together; none when they do not fit."""
    return layouts_by_multiset(gpu).get(tuple(sorted(p.profile_id for p in profiles)), ())


def why_not(gpu: GpuModel, profiles: Iterable[Profile]) -> str:
    """Why these slices do not fit together, and which part of them would."""
    wanted = list(profiles)
    return f"{counted(wanted)} do not fit on {gpu.name}: {_reason(gpu, wanted)}; {_what_would(gpu, wanted)}"


def _reason(gpu: GpuModel, wanted: list[Profile]) -> str:
    for name, count in Counter(p.name for p in wanted).items():
        most = gpu.profile(name).max_instances
        if count > most:
            return f"at most {most}× {name} can exist at once"
    needed = sum(p.memory_slices for p in wanted)
    if needed > gpu.memory_slices:
        return f"they take {needed} memory slices and there are {gpu.memory_slices}"
    return engine_shortage(gpu, wanted) or "no choice of their allowed starts keeps them apart"


def _what_would(gpu: GpuModel, wanted: list[Profile]) -> str:
    bag = Counter(p.profile_id for p in wanted)
    inside = [Counter(known) for known in layouts_by_multiset(gpu) if Counter(known) <= bag]
    most = max(part.total() for part in inside)

    def weight(part: Counter[int]) -> int:
        return sum(gpu.by_id(number).memory_slices for number in part.elements())

    best = sorted((part for part in inside if part.total() == most), key=weight, reverse=True)[:2]
    shown = " or ".join(counted(map(gpu.by_id, part.elements())) for part in best)
    advice = f"{shown} would" if most else "none of them fits alone"
    roomy = [
        name for name, other in table().items() if other.name != gpu.name and _fits_by_name(other, wanted)
    ]
    return f"{advice}, and all of them on {', '.join(roomy)}" if roomy else advice


def _fits_by_name(gpu: GpuModel, wanted: list[Profile]) -> bool:
    numbers = {p.name: p for p in gpu.profiles}
    return all(p.name in numbers for p in wanted) and bool(fitting(gpu, (numbers[p.name] for p in wanted)))
