"""Plans layouts for workloads: searches all layouts of a GPU and returns the best by an objective.

The search is exhaustive (see `enumerate`), so "does not fit" is a proof and "best" is exact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from calotype.core.errors import DoesNotFitError
from calotype.mig.enumerate import Multiset, fitting, layouts_by_multiset, why_not
from calotype.mig.layout import EMPTY, Layout, Slice, counted, profiles_of
from calotype.mig.performance_model import PerformanceModel, Prediction, predict
from calotype.mig.profiles import GIB, GpuModel, Profile, table
from calotype.mig.request_syntax import WorkloadRequest, WorkloadRequests

# Smaller differences between sums of shares are rounding errors.
_DIGITS = 9


class Objective(StrEnum):
    """How layouts are ranked."""

    THROUGHPUT = "throughput"
    """The largest total speed; of equals, the one whose slowest slice is fastest."""
    INSTANCES = "instances"
    """The most slices: free space is partitioned too."""
    WASTE = "waste"
    """The least excess memory, and the least compute that no slice can use."""
    KEEP = "keep"
    """The most existing slices stay unchanged."""


@dataclass(frozen=True)
class Assigned:
    """A slice and its workload."""

    slice: Slice
    profile: Profile
    want: WorkloadRequest | None
    """None for a spare slice."""
    prediction: Prediction


@dataclass(frozen=True)
class Plan:
    """A layout in which all workloads run."""

    layout: Layout
    assigned: tuple[Assigned, ...]
    total_share: float
    wasted_share: float
    """Share of the GPU: excess memory, and compute that no slice can use."""
    kept: int
    """Slices that already exist at the same placement."""


@dataclass(frozen=True)
class PlanRequest:
    """The inputs of the planner."""

    gpu: GpuModel
    wants: WorkloadRequests
    figures: PerformanceModel
    objective: Objective = Objective.THROUGHPUT
    existing: Layout = EMPTY
    locked: tuple[Slice, ...] = ()
    """Slices that must stay at their placement, beside the requested ones."""


def plans(request: PlanRequest, most: int = 3) -> list[Plan]:
    """The best layouts, each with a different set of slices, best first."""
    found = [
        plan
        for multiset in layouts_by_multiset(request.gpu)
        if (plan := _best_with_multiset(request, multiset))
    ]
    if not found:
        raise DoesNotFitError(_why_not(request))
    # Profiles that differ only in media engines are the same choice unless these were requested.
    distinct: dict[tuple[str, ...], Plan] = {}
    for plan in sorted(found, key=lambda plan: _rank(request, plan), reverse=True):
        distinct.setdefault(tuple(sorted(part.profile.plain_name for part in plan.assigned)), plan)
    return list(distinct.values())[:most]


def places_for(gpu: GpuModel, profiles: Sequence[Profile], existing: Layout, busy: Layout = EMPTY) -> Layout:
    """Placements of these slices that keep the most existing slices, busy ones first, and leave room."""
    layouts = fitting(gpu, profiles)
    if not layouts:
        raise DoesNotFitError(why_not(gpu, profiles))
    return max(layouts, key=lambda layout: (_num_kept(layout, busy), *_place_rank(gpu, layout, existing)))


def _rank(request: PlanRequest, plan: Plan) -> tuple[object, ...]:
    # A filling request asks for as many slices as fit; the objective ranks the ways to do so.
    filled = len(plan.assigned) if request.wants.filling else 0
    return filled, *_objective_rank(request.objective, plan)


def _objective_rank(objective: Objective, plan: Plan) -> tuple[object, ...]:
    slowest_first = sorted(round(part.prediction.share, _DIGITS) for part in plan.assigned)
    throughput = (round(plan.total_share, _DIGITS), slowest_first)
    suffixes = sum(part.profile.name != part.profile.plain_name for part in plan.assigned)
    frugal = (-round(plan.wasted_share, _DIGITS), -suffixes)
    match objective:
        case Objective.THROUGHPUT:
            return *throughput, plan.kept, frugal
        case Objective.INSTANCES:
            return len(plan.assigned), *throughput, plan.kept, frugal
        case Objective.WASTE:
            return frugal, *throughput, plan.kept
        case Objective.KEEP:
            return plan.kept, *throughput, frugal


def _best_with_multiset(request: PlanRequest, multiset: Multiset) -> Plan | None:
    """The best plan with exactly these slices, or None if they do not satisfy the requests."""
    remaining = list(multiset)
    for part in request.locked:
        if part.profile_id not in remaining:
            return None
        remaining.remove(part.profile_id)
    chosen = _assignment(request, tuple(remaining))
    layouts = [
        layout
        for layout in layouts_by_multiset(request.gpu)[multiset]
        if all(any(_same_place(part, other) for other in layout.slices) for part in request.locked)
    ]
    if chosen is None or not layouts:
        return None
    layout = max(layouts, key=lambda each: _place_rank(request.gpu, each, request.existing))
    return _plan(request, layout, chosen)


def _assignment(request: PlanRequest, multiset: Multiset) -> list[tuple[WorkloadRequest | None, int]] | None:
    """Assign profiles to requests with the largest total speed, and of equals the fastest slowest one."""
    wants = list(request.wants.fixed)
    spare = len(multiset) - len(wants)
    if request.wants.filling:
        wants += [request.wants.filling] * spare
    if spare < (1 if request.wants.filling and not request.wants.fixed else 0):
        return None
    if spare and not request.wants.filling and request.objective is not Objective.INSTANCES:
        return None

    @cache
    def best(index: int, left: Multiset) -> tuple[float, tuple[float, ...], tuple[int, ...]] | None:
        if index == len(wants):
            return 0.0, (), ()
        found = []
        for number in sorted(set(left)):
            share = _share(request, wants[index], request.gpu.by_id(number))
            position = left.index(number)
            rest = best(index + 1, left[:position] + left[position + 1 :]) if share is not None else None
            if rest is not None and share is not None:
                total = round(share + rest[0], _DIGITS)
                found.append((total, tuple(sorted((share, *rest[1]))), (number, *rest[2])))
        return max(found, default=None)

    best_assignment = best(0, multiset)
    if best_assignment is None:
        return None
    spares = list(multiset)
    for number in best_assignment[2]:
        spares.remove(number)
    return [*zip(wants, best_assignment[2], strict=True), *((None, number) for number in spares)]


def _share(request: PlanRequest, want: WorkloadRequest, profile: Profile) -> float | None:
    """The speed of this workload in such a slice, or None if the slice does not satisfy it."""
    if not want.satisfied_by(profile):
        return None
    share = predict(request.figures, request.gpu, profile, want.model, want.batch).share
    return None if share + 1e-9 < want.least_share else share


def _plan(request: PlanRequest, layout: Layout, chosen: list[tuple[WorkloadRequest | None, int]]) -> Plan:
    unassigned = list(chosen)
    unassigned += [(None, part.profile_id) for part in request.locked]
    assigned = []
    for part in layout.slices:
        profile = request.gpu.by_id(part.profile_id)
        match = next(pair for pair in unassigned if pair[1] == part.profile_id)
        unassigned.remove(match)
        want = match[0]
        model, batch = (want.model, want.batch) if want else (None, 1)
        expected = predict(request.figures, request.gpu, profile, model, batch)
        assigned.append(Assigned(part, profile, want, expected))
    return Plan(
        layout=layout,
        assigned=tuple(assigned),
        total_share=sum(part.prediction.share for part in assigned if part.want),
        wasted_share=sum(_wasted(request.gpu, part) for part in assigned),
        kept=_num_kept(layout, request.existing),
    )


def _wasted(gpu: GpuModel, part: Assigned) -> float:
    unusable = max(0, min(part.profile.memory_slices, gpu.compute_slices) - part.profile.compute_slices)
    excess = 0
    if part.want and part.want.profile is None:
        excess = part.profile.memory_bytes - part.want.memory_bytes
    return unusable / gpu.compute_slices + excess / gpu.whole.memory_bytes


def _same_place(one: Slice, other: Slice) -> bool:
    return (one.start, one.profile_id) == (other.start, other.profile_id)


def _num_kept(layout: Layout, existing: Layout) -> int:
    return sum(
        any(_same_place(part, existing_text) for existing_text in existing.slices) for part in layout.slices
    )


def _place_rank(gpu: GpuModel, layout: Layout, existing: Layout) -> tuple[object, ...]:
    taken = {place for part in layout.slices for place in gpu.by_id(part.profile_id).taken(part.start)}
    free = [
        profile.memory_slices
        for profile in gpu.profiles
        for start in profile.starts
        if taken.isdisjoint(profile.taken(start))
    ]
    return (
        _num_kept(layout, existing),
        max(free, default=0),
        len(free),
        [-part.start for part in layout.slices],
    )


def _why_not(request: PlanRequest) -> str:
    return f"{'; '.join(_reasons(request))}{_fits_on(request)}"


def _reasons(request: PlanRequest) -> Iterator[str]:
    gpu, wants = request.gpu, list(request.wants.fixed)
    if request.wants.filling:
        wants.append(request.wants.filling)
    smallest: list[Profile] = []
    for want in wants:
        suitable = [profile for profile in gpu.profiles if _share(request, want, profile) is not None]
        if not suitable:
            largest = (
                f"the largest slice of {gpu.name}, {gpu.whole.name}, has {_size(gpu.whole.memory_bytes)}"
            )
            speed = f" and {want.least_share:.0%} of its speed" if want.least_share else ""
            yield f"{want.label} needs {_size(want.memory_bytes)}{speed}, but no slice has that; {largest}"
            return
        smallest.append(min(suitable, key=lambda p: (p.memory_slices, p.compute_slices, p.name)))
    if request.locked:
        existing_text = counted(profiles_of(gpu, Layout.of(request.locked)))
        yield f"{counted(smallest)} do not fit on {gpu.name} beside what must stay ({existing_text})"
        return
    needs = [want for want in wants if want.profile is None]
    if needs:
        yield f"{', '.join(want.label for want in needs)} need at least {counted(smallest)}"
    yield why_not(gpu, smallest)


def _fits_on(request: PlanRequest) -> str:
    """Other GPUs that fit the same workloads; profile names differ there, so only workloads count."""
    if any(want.profile for want in request.wants.fixed) or request.locked:
        return ""

    def serves(gpu: GpuModel) -> bool:
        other_request = PlanRequest(gpu, request.wants, request.figures)
        return any(_best_with_multiset(other_request, multiset) for multiset in layouts_by_multiset(gpu))

    larger = [name for name, gpu in table().items() if name != request.gpu.name and serves(gpu)]
    return f"; it would fit on {', '.join(larger)}" if larger else ""


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
