"""Enumerates all layouts of a GPU, to find which sets of slices fit.

A GPU has at most a few thousand layouts, so every query searches all of them: results are exact.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from calotype.mig.layout import Layout, Slice, counted, engine_shortage
from calotype.mig.profiles import GpuModel, Profile, table

Multiset = tuple[int, ...]
"""Sorted profile ids: counts matter and placements do not."""


def multiset_of(layout: Layout) -> Multiset:
    return tuple(sorted(part.profile_id for part in layout.slices))


@cache
def layouts_by_multiset(gpu: GpuModel) -> Mapping[Multiset, tuple[Layout, ...]]:
    """All layouts of the GPU by their multiset of profiles; leftmost starts first."""
    found: dict[Multiset, list[Layout]] = {}
    for slices in _enumerate(gpu, 0, (), Counter()):
        if engine_shortage(gpu, (gpu.by_id(part.profile_id) for part in slices)) is None:
            layout = Layout(True, slices)
            found.setdefault(multiset_of(layout), []).append(layout)
    return {
        multiset: tuple(sorted(layouts, key=lambda each: [part.start for part in each.slices]))
        for multiset, layouts in found.items()
    }


def _enumerate(
    gpu: GpuModel, place: int, so_far: tuple[Slice, ...], used: Counter[int]
) -> Iterator[tuple[Slice, ...]]:
    """All layouts from the memory slice `place` on: leave it empty, or place each possible profile there."""
    if place >= gpu.memory_slices:
        yield so_far
        return
    yield from _enumerate(gpu, place + 1, so_far, used)
    for profile in gpu.profiles:
        number = profile.profile_id
        if place in profile.starts and used[number] < profile.max_instances:
            part = Slice(place, number)
            yield from _enumerate(
                gpu, place + profile.memory_slices, (*so_far, part), used + Counter([number])
            )


def fitting(gpu: GpuModel, profiles: Iterable[Profile]) -> tuple[Layout, ...]:
    """All layouts with exactly these profiles; empty if they do not fit."""
    return layouts_by_multiset(gpu).get(tuple(sorted(p.profile_id for p in profiles)), ())


def why_not(gpu: GpuModel, profiles: Iterable[Profile]) -> str:
    """Explain why these slices do not fit together, and which subset would."""
    wanted = list(profiles)
    return (
        f"{counted(wanted)} do not fit on {gpu.name}: {_reason(gpu, wanted)}; {_largest_fitting(gpu, wanted)}"
    )


def _reason(gpu: GpuModel, wanted: list[Profile]) -> str:
    for name, count in Counter(p.name for p in wanted).items():
        most = gpu.profile(name).max_instances
        if count > most:
            return f"at most {most}× {name} fit at once"
    needed = sum(p.memory_slices for p in wanted)
    if needed > gpu.memory_slices:
        return f"they need {needed} memory slices and there are {gpu.memory_slices}"
    return engine_shortage(gpu, wanted) or "every combination of their allowed starts overlaps"


def _largest_fitting(gpu: GpuModel, wanted: list[Profile]) -> str:
    multiset = Counter(p.profile_id for p in wanted)
    subsets = [Counter(known) for known in layouts_by_multiset(gpu) if Counter(known) <= multiset]
    most = max(part.total() for part in subsets)

    def weight(part: Counter[int]) -> int:
        return sum(gpu.by_id(number).memory_slices for number in part.elements())

    best = sorted((part for part in subsets if part.total() == most), key=weight, reverse=True)[:2]
    shown = " or ".join(counted(map(gpu.by_id, part.elements())) for part in best)
    advice = f"{shown} would" if most else "none of them fits alone"
    larger = [
        name for name, other in table().items() if other.name != gpu.name and _fits_by_name(other, wanted)
    ]
    return f"{advice}, and all of them on {', '.join(larger)}" if larger else advice


def _fits_by_name(gpu: GpuModel, wanted: list[Profile]) -> bool:
    numbers = {p.name: p for p in gpu.profiles}
    return all(p.name in numbers for p in wanted) and bool(fitting(gpu, (numbers[p.name] for p in wanted)))
