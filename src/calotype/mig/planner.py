"""From what must run to layouts: looks at every layout there is and keeps the best by an objective.

The search is exhaustive (see `fitting`), so that "does not fit" is a proof and "best" means best. Knows
nothing of drivers: what a GPU is cut into now arrives as a layout.
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

# Sums of shares that differ by less are the same sum, added in another order.
_DIGITS = 9


class Objective(StrEnum):
    """What makes one layout better than another."""

    THROUGHPUT = "throughput"
    """The most work a second in all; of equals, the one whose slowest slice is fastest."""
    INSTANCES = "instances"
    """The most slices: what is left over is cut up too."""
    WASTE = "waste"
    """The least memory beyond what is needed, and the least compute that no slice can use."""
    KEEP = "keep"
    """The most of what is there now stays untouched."""


@dataclass(frozen=True)
class Assigned:
    """A slice and what is to run in it."""

    slice: Slice
    profile: Profile
    want: WorkloadRequest | None
    """None: a spare slice."""
    prediction: Prediction


@dataclass(frozen=True)
class Plan:
    """One way to cut the GPU so that everything runs."""

    layout: Layout
    assigned: tuple[Assigned, ...]
    total_share: float
    wasted_share: float
    """Of the GPU: memory beyond need, and compute that is shut in."""
    kept: int
    """Slices that are there already, at the same place."""


@dataclass(frozen=True)
class PlanRequest:
    """What the planner is asked."""

    gpu: GpuModel
    wants: WorkloadRequests
    figures: PerformanceModel
    objective: Objective = Objective.THROUGHPUT
    existing: Layout = EMPTY
    locked: tuple[Slice, ...] = ()
    """Slices that must stay where they are, beside those that are wanted."""


def plans(question: PlanRequest, most: int = 3) -> list[Plan]:
    """The best layouts, each with another set of slices; the first is the one to take."""
    found = [plan for bag in layouts_by_multiset(question.gpu) if (plan := _best_of_bag(question, bag))]
    if not found:
        raise DoesNotFitError(_why_not(question))
    # Shapes that differ in media engines alone are no other choice to someone who did not ask for those.
    distinct: dict[tuple[str, ...], Plan] = {}
    for plan in sorted(found, key=lambda plan: _rank(question, plan), reverse=True):
        distinct.setdefault(tuple(sorted(part.profile.plain_name for part in plan.assigned)), plan)
    return list(distinct.values())[:most]


def places_for(gpu: GpuModel, profiles: Sequence[Profile], existing: Layout, busy: Layout = EMPTY) -> Layout:
    """Where these slices go so that the most of what is there stays, busy ones first, and room is left."""
    layouts = fitting(gpu, profiles)
    if not layouts:
        raise DoesNotFitError(why_not(gpu, profiles))
    return max(layouts, key=lambda layout: (_kept(layout, busy), *_place_rank(gpu, layout, existing)))


def _rank(question: PlanRequest, plan: Plan) -> tuple[object, ...]:
    # As many as fit is what was asked for; the objective chooses among the ways to do so.
    filled = len(plan.assigned) if question.wants.filling else 0
    return filled, *_worth(question.objective, plan)


def _worth(objective: Objective, plan: Plan) -> tuple[object, ...]:
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


def _best_of_bag(question: PlanRequest, bag: Multiset) -> Plan | None:
    """The best plan with exactly these slices, or None when they do not serve."""
    remaining = list(bag)
    for part in question.locked:
        if part.profile_id not in remaining:
            return None
        remaining.remove(part.profile_id)
    chosen = _assignment(question, tuple(remaining))
    layouts = [
        layout
        for layout in layouts_by_multiset(question.gpu)[bag]
        if all(any(_same_place(part, other) for other in layout.slices) for part in question.locked)
    ]
    if chosen is None or not layouts:
        return None
    layout = max(layouts, key=lambda each: _place_rank(question.gpu, each, question.existing))
    return _plan(question, layout, chosen)


def _assignment(question: PlanRequest, bag: Multiset) -> list[tuple[WorkloadRequest | None, int]] | None:
    """Who gets which shape so that the sum of speeds is largest, and of equals the slowest fastest."""
    wants = list(question.wants.fixed)
    spare = len(bag) - len(wants)
    if question.wants.filling:
        wants += [question.wants.filling] * spare
    if spare < (1 if question.wants.filling and not question.wants.fixed else 0):
        return None
    if spare and not question.wants.filling and question.objective is not Objective.INSTANCES:
        return None

    @cache
    def best(index: int, left: Multiset) -> tuple[float, tuple[float, ...], tuple[int, ...]] | None:
        if index == len(wants):
            return 0.0, (), ()
        found = []
        for number in sorted(set(left)):
            share = _share(question, wants[index], question.gpu.by_id(number))
            position = left.index(number)
            rest = best(index + 1, left[:position] + left[position + 1 :]) if share is not None else None
            if rest is not None and share is not None:
                total = round(share + rest[0], _DIGITS)
                found.append((total, tuple(sorted((share, *rest[1]))), (number, *rest[2])))
        return max(found, default=None)

    answer = best(0, bag)
    if answer is None:
        return None
    spares = list(bag)
    for number in answer[2]:
        spares.remove(number)
    return [*zip(wants, answer[2], strict=True), *((None, number) for number in spares)]


def _share(question: PlanRequest, want: WorkloadRequest, profile: Profile) -> float | None:
    """The speed of this work in such a slice, or None when it does not do."""
    if not want.satisfied_by(profile):
        return None
    share = predict(question.figures, question.gpu, profile, want.model, want.batch).share
    return None if share + 1e-9 < want.least_share else share


def _plan(question: PlanRequest, layout: Layout, chosen: list[tuple[WorkloadRequest | None, int]]) -> Plan:
    waiting = list(chosen)
    waiting += [(None, part.profile_id) for part in question.locked]
    assigned = []
    for part in layout.slices:
        profile = question.gpu.by_id(part.profile_id)
        match = next(pair for pair in waiting if pair[1] == part.profile_id)
        waiting.remove(match)
        want = match[0]
        model, batch = (want.model, want.batch) if want else (None, 1)
        expected = predict(question.figures, question.gpu, profile, model, batch)
        assigned.append(Assigned(part, profile, want, expected))
    return Plan(
        layout=layout,
        assigned=tuple(assigned),
        total_share=sum(part.prediction.share for part in assigned if part.want),
        wasted_share=sum(_wasted(question.gpu, part) for part in assigned),
        kept=_kept(layout, question.existing),
    )


def _wasted(gpu: GpuModel, part: Assigned) -> float:
    shut_in = max(0, min(part.profile.memory_slices, gpu.compute_slices) - part.profile.compute_slices)
    beyond = 0
    if part.want and part.want.profile is None:
        beyond = part.profile.memory_bytes - part.want.memory_bytes
    return shut_in / gpu.compute_slices + beyond / gpu.whole.memory_bytes


def _same_place(one: Slice, other: Slice) -> bool:
    return (one.start, one.profile_id) == (other.start, other.profile_id)


def _kept(layout: Layout, existing: Layout) -> int:
    return sum(any(_same_place(part, there) for there in existing.slices) for part in layout.slices)


def _place_rank(gpu: GpuModel, layout: Layout, existing: Layout) -> tuple[object, ...]:
    taken = {place for part in layout.slices for place in gpu.by_id(part.profile_id).taken(part.start)}
    free = [
        profile.memory_slices
        for profile in gpu.profiles
        for start in profile.starts
        if taken.isdisjoint(profile.taken(start))
    ]
    return _kept(layout, existing), max(free, default=0), len(free), [-part.start for part in layout.slices]


def _why_not(question: PlanRequest) -> str:
    return f"{'; '.join(_reasons(question))}{_elsewhere(question)}"


def _reasons(question: PlanRequest) -> Iterator[str]:
    gpu, wants = question.gpu, list(question.wants.fixed)
    if question.wants.filling:
        wants.append(question.wants.filling)
    smallest: list[Profile] = []
    for want in wants:
        good = [profile for profile in gpu.profiles if _share(question, want, profile) is not None]
        if not good:
            largest = (
                f"the largest slice of {gpu.name}, {gpu.whole.name}, has {_size(gpu.whole.memory_bytes)}"
            )
            speed = f" and {want.least_share:.0%} of its speed" if want.least_share else ""
            yield f"{want.label} needs {_size(want.memory_bytes)}{speed}, and no slice has that; {largest}"
            return
        smallest.append(min(good, key=lambda p: (p.memory_slices, p.compute_slices, p.name)))
    if question.locked:
        there = counted(profiles_of(gpu, Layout.of(question.locked)))
        yield f"{counted(smallest)} do not fit on {gpu.name} beside what must stay ({there})"
        return
    needs = [want for want in wants if want.profile is None]
    if needs:
        yield f"{', '.join(want.label for want in needs)} need at least {counted(smallest)}"
    yield why_not(gpu, smallest)


def _elsewhere(question: PlanRequest) -> str:
    """Other GPUs with room for the same work; shapes have other names there, so only work is asked."""
    if any(want.profile for want in question.wants.fixed) or question.locked:
        return ""

    def serves(gpu: GpuModel) -> bool:
        asked = PlanRequest(gpu, question.wants, question.figures)
        return any(_best_of_bag(asked, bag) for bag in layouts_by_multiset(gpu))

    roomy = [name for name, gpu in table().items() if name != question.gpu.name and serves(gpu)]
    return f"; it would fit on {', '.join(roomy)}" if roomy else ""


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
