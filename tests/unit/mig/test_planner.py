"""Plans: the best there is by an objective, what stays, and refusals that say what would do."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.core.errors import DoesNotFitError, RequestError
from calotype.mig.layout import Layout, Slice, broken_rules
from calotype.mig.performance_model import predict, shipped
from calotype.mig.planner import Objective, Plan, PlanRequest, places_for, plans
from calotype.mig.profiles import GIB, model_named
from calotype.mig.request_syntax import WorkloadRequest, WorkloadRequests, parse_requests
from tests.unit.mig.test_enumerate import reachable


def ask(text: str, gpu: str = "A100-80GB", objective: Objective = Objective.THROUGHPUT) -> list[Plan]:
    model = model_named(gpu)
    return plans(PlanRequest(model, parse_requests(text, model, shipped()), shipped(), objective))


def shapes(plan: Plan) -> list[str]:
    return [part.profile.name for part in plan.assigned]


def test_the_layout_of_the_text_follows_from_its_work() -> None:
    best = ask("3×sd15@4, 1×sd15+me")[0]
    assert [part.slice.profile_id for part in best.assigned] == [14, 14, 14, 20]
    assert [part.slice.start for part in best.assigned] == [0, 2, 4, 6]
    assert [part.want.label for part in best.assigned if part.want] == ["sd15@4"] * 3 + ["sd15@1+me"]


def test_several_good_layouts_are_different_sets_of_slices() -> None:
    found = ask("3 x sd15 at batch 4, 1 x sdxl")
    assert len(found) == 3
    assert len({tuple(sorted(shapes(plan))) for plan in found}) == 3
    for plan in found:
        assert not list(broken_rules(model_named("A100-80GB"), plan.layout))


@settings(max_examples=40, deadline=None)
@given(
    needs=st.lists(
        st.tuples(st.sampled_from([1, 9, 12, 19, 25, 39]), st.sampled_from([0.0, 0.15, 0.3, 0.5])),
        min_size=1,
        max_size=4,
    ),
    gpu=st.sampled_from(["A100-80GB", "H100-80GB-SXM5", "A30-24GB", "RTX-PRO-6000-Blackwell-96GB"]),
)
def test_no_assignment_is_faster_than_the_plan(needs: list[tuple[int, float]], gpu: str) -> None:
    model = model_named(gpu)
    wants = WorkloadRequests(
        tuple(WorkloadRequest(f"{size} GiB", None, size * GIB, share) for size, share in needs)
    )
    whole = model.whole.sms
    assert whole
    fastest = 0.0
    for bag in reachable(gpu):
        if len(bag) != len(needs):
            continue
        for numbers in set(permutations(bag)):
            given = [model.by_id(number) for number in numbers]
            speeds = [(profile.sms or 0) / whole for profile in given]
            enough = all(
                profile.memory_bytes >= size * GIB and speed >= share
                for profile, speed, (size, share) in zip(given, speeds, needs, strict=True)
            )
            fastest = max(fastest, sum(speeds)) if enough else fastest
    question = PlanRequest(model, wants, shipped())
    if fastest:
        assert plans(question)[0].total_share == pytest.approx(fastest)
    else:
        with pytest.raises(DoesNotFitError):
            plans(question)


WORK = ["sd15@1", "sd15@16", "sdxl@1", "sdxl@8"]


@settings(max_examples=25, deadline=None)
@given(work=st.lists(st.sampled_from(WORK), min_size=2, max_size=4))
def test_who_gets_which_slice_is_best_by_the_records(work: list[str]) -> None:
    """Work that a small slice feeds as well as a large one leaves the large one to others."""
    gpu, known = model_named("H200-141GB"), shipped()
    wants = parse_requests(",".join(work), gpu, known)

    def speed(want: WorkloadRequest, number: int) -> float:
        profile = gpu.by_id(number)
        if profile.memory_bytes < want.memory_bytes:
            return float("-inf")
        return predict(known, gpu, profile, want.model, want.batch).share

    fastest = max(
        sum(speed(want, number) for want, number in zip(wants.fixed, numbers, strict=True))
        for bag in reachable(gpu.name)
        if len(bag) == len(work)
        for numbers in set(permutations(bag))
    )
    best = plans(PlanRequest(gpu, wants, known))[0]
    assert best.total_share == pytest.approx(fastest)
    assert sorted(part.want.label for part in best.assigned if part.want) == sorted(work)


def test_objectives_differ_in_what_they_want() -> None:
    text = "2×sd15@4"
    fast, many, frugal = (
        ask(text, objective=each)[0] for each in (Objective.THROUGHPUT, Objective.INSTANCES, Objective.WASTE)
    )
    assert shapes(fast) == ["4g.40gb", "3g.40gb"]
    assert len(many.assigned) == 7
    assert sum(part.want is None for part in many.assigned) == 5, "the rest is spare"
    assert set(shapes(frugal)) == {"1g.10gb"}


def test_what_is_there_stays_where_it_can() -> None:
    gpu = model_named("A100-80GB")
    existing = Layout.of([Slice(4, 14), Slice(6, 19)])
    text = "2g.20gb×2,1g.10gb"
    question = PlanRequest(gpu, parse_requests(text, gpu, shipped()), shipped(), Objective.KEEP, existing)
    best = plans(question)[0]
    assert best.kept == 2
    assert set(existing.slices) < set(best.layout.slices)
    beside = PlanRequest(
        gpu, parse_requests("3g.40gb", gpu, shipped()), shipped(), existing=existing, locked=existing.slices
    )
    assert plans(beside)[0].layout == Layout.of([*existing.slices, Slice(0, 9)])


def test_what_is_in_use_stays_before_what_is_idle() -> None:
    gpu = model_named("A100-80GB")
    existing = Layout.of([Slice(0, 14), Slice(2, 14), Slice(4, 14)])
    busy = Layout.of([Slice(4, 14)])
    assert places_for(gpu, [gpu.by_id(14), gpu.by_id(9)], existing).slices == (Slice(0, 14), Slice(4, 9))
    kept = places_for(gpu, [gpu.by_id(14), gpu.by_id(9)], existing, busy)
    assert kept.slices == (Slice(0, 9), Slice(4, 14))


@pytest.mark.parametrize("objective", Objective)
def test_as_many_as_fit(objective: Objective) -> None:
    found = ask("1×3g.40gb,*×sd15@4", objective=objective)[0]
    assert sorted(shapes(found)) == ["1g.10gb"] * 4 + ["3g.40gb"]
    assert len(shapes(ask("*×sd15", objective=objective)[0])) == 7


def test_work_that_does_not_fit_says_what_would() -> None:
    with pytest.raises(DoesNotFitError, match=r"need at least 3× 4g\.24gb.*1× 4g\.24gb would.*A100-80GB"):
        ask("3×sdxl@8", "A30-24GB")
    with pytest.raises(DoesNotFitError, match=r"needs 93\.1 GiB, but no slice has that.*79\.0 GiB"):
        ask("100gb")


def test_unpublished_memory_is_estimated_and_plans_work_without_it() -> None:
    assert shapes(ask("7×sd15", "H20-141GB")[0]).count("1g.18gb") >= 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1g.11gb", r"no profile '1g\.11gb'; did you mean '1g\.10gb'"),
        ("1g.5gb", r"A100-40GB has it"),
        ("0×2g.20gb", r"0 is out of range.*room for 1 to 7 slices"),
        ("99×sd15", r"99 is out of range"),
        ("2g.20gb×99", r"99 is out of range"),
        ("21", r"no profile number 21; it has 19 \(1g\.10gb\)"),
        ("sd16", r"did you mean 'sd15'"),
        ("sd15@0", r"batch|0 is out of range"),
        ("10gb/1.5", r"0 to 1"),
        ("a; rm -rf /", r"is not a valid request|there are no figures"),
        ("", r"the request is empty"),
        ("*×sd15,*×sdxl", r"only one item"),
    ],
)
def test_bad_wishes_are_refused_with_the_rule(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ask(text)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(RequestError) as told:
        ask("0×sd15,1g.11gb,sd16")
    assert len(told.value.problems) == 3
