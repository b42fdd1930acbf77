"""The model of a step and its fit: laws it has to keep, known parameters found back from made-up points."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.bench.scaling.allreduce_model import Links, expected_maximum, ring_s
from calotype.bench.scaling.fit import Observed, fit, fit_known_parameters, parameters_in
from calotype.bench.scaling.model import Load, StepModel
from calotype.core.errors import RequestError

SECONDS = st.floats(0, 1)
MODELS = st.builds(
    StepModel,
    per_micro_batch_s=SECONDS,
    per_sample_s=st.floats(1e-4, 1),
    fixed_s=SECONDS,
    inside_s=SECONDS,
    between_s=SECONDS,
    inside_latency_s=st.floats(0, 0.01),
    between_latency_s=st.floats(0, 0.01),
    spread_s=st.floats(0, 0.1),
    overlap=st.floats(0, 1),
)
LOADS = st.builds(Load, st.integers(1, 64), st.integers(1, 8), st.integers(1, 300), st.integers(1, 40))


def test_the_expected_maximum_is_the_known_one() -> None:
    # Exact values of Harter (1961), and of two draws 1/sqrt(pi).
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 0.84628, 10: 1.53875, 100: 2.50759, 400: 2.96818}
    for count, value in known.items():
        assert expected_maximum(count) == pytest.approx(value, abs=1e-5)


def test_the_expected_maximum_is_what_draws_give() -> None:
    draws = random.Random(4)
    mean = math.fsum(max(draws.gauss(0, 1) for _ in range(64)) for _ in range(4000)) / 4000
    assert expected_maximum(64) == pytest.approx(mean, abs=0.03)


def test_a_ring_moves_what_it_has_to() -> None:
    """Against the steps of the algorithm, one after the other: each of n sends n-1 pieces twice."""
    for count in range(1, 20):
        pieces = [1.0 / count] * (count - 1) * 2
        assert ring_s(count, 3.0, 0.01) == pytest.approx(sum(3.0 * piece + 0.01 for piece in pieces))
    links = Links(inside_s=0.1, between_s=0.4, between_latency_s=0.001)
    assert links.all_reduce_s(1, 1) == 0
    assert links.all_reduce_s(1, 8) == pytest.approx(0.175)
    assert links.all_reduce_s(64, 8) == pytest.approx(0.175 + 2 * 63 / 64 * 0.4 + 126 * 0.001)


@settings(max_examples=150, deadline=None)
@given(MODELS, LOADS, st.integers(1, 64))
def test_more_nodes_never_make_a_step_shorter_and_efficiency_stays_below_one(
    model: StepModel, load: Load, nodes: int
) -> None:
    base, more = load.over(1, load.gpus_per_node), load.over(nodes, load.gpus_per_node)
    assert model.step_s(more) >= model.step_s(base) * (1 - 1e-12)
    assert model.efficiency(more, base) <= 1 + 1e-12
    assert model.efficiency(base, base) == pytest.approx(1)


@settings(max_examples=150, deadline=None)
@given(MODELS, LOADS, st.integers(2, 64))
def test_sharing_work_gives_no_more_than_as_many_times(model: StepModel, load: Load, nodes: int) -> None:
    whole = load.over(1, load.gpus_per_node)
    # In whole micro-batches: what is left over would be trained in a smaller one, or dropped.
    whole = replace(whole, samples_per_gpu=whole.micro_batch * nodes)
    shared = whole.shared_by(nodes, load.gpus_per_node)
    assert shared.samples == whole.samples
    assert model.efficiency(shared, whole) <= 1 + 1e-12
    assert sum(model.parts(shared).values()) == pytest.approx(model.step_s(shared))


@settings(max_examples=100, deadline=None)
@given(MODELS, LOADS, st.sampled_from(["per_sample_s", "fixed_s", "between_s", "inside_s", "spread_s"]))
def test_every_cost_makes_a_step_longer(model: StepModel, load: Load, name: str) -> None:
    dearer = replace(model, **{name: model.as_dict()[name] + 0.1})
    assert dearer.step_s(load) >= model.step_s(load)


@settings(max_examples=100, deadline=None)
@given(MODELS, LOADS)
def test_slopes_add_up_to_the_step(model: StepModel, load: Load) -> None:
    values = model.as_dict()
    total = sum(slope * values[name] for name, slope in model.slopes(load).items())
    assert total == pytest.approx(model.step_s(load))


def test_overlap_hides_no_more_than_the_last_backward_pass() -> None:
    load = Load(2, 1, 8, 4)
    model = StepModel(per_sample_s=0.1, between_s=1.0, overlap=1.0)
    assert model.parts(load)["exchange"] == pytest.approx(1.0 - 2 / 3 * 0.4)
    assert replace(model, overlap=0.0).parts(load)["exchange"] == pytest.approx(1.0)
    assert replace(model, between_s=0.2).parts(load)["exchange"] == 0


TRUE = StepModel(
    per_sample_s=0.016,
    per_micro_batch_s=0.09,
    fixed_s=0.2,
    inside_s=0.15,
    between_s=0.4,
    between_latency_s=0.002,
    spread_s=0.01,
    overlap=0.5,
)


def made_up(model: StepModel, noise: float = 0.0) -> list[Observed]:
    draws = random.Random(1)
    loads = [
        Load(nodes, gpus, samples, micro)
        for nodes in (1, 2, 4, 8)
        for gpus in (1, 2, 8)
        for samples, micro in ((4, 4), (16, 4), (16, 16))
    ]
    return [Observed(str(load), load, model.step_s(load) * (1 + draws.gauss(0, noise))) for load in loads]


def test_the_fit_finds_known_parameters() -> None:
    points = made_up(TRUE)
    found = fit_known_parameters(points, StepModel(overlap=TRUE.overlap))
    for name, value in TRUE.as_dict().items():
        assert found.model.as_dict()[name] == pytest.approx(value, rel=1e-4, abs=1e-7), name
    assert found.error < 1e-6
    assert "inside_latency_s" not in found.free, "nothing in the points asks for it"


def test_noise_leaves_parameters_near_and_says_how_near() -> None:
    found = fit_known_parameters(made_up(TRUE, noise=0.01), StepModel(overlap=TRUE.overlap))
    assert found.error == pytest.approx(0.01, rel=0.5)
    for name in ("per_sample_s", "per_micro_batch_s", "fixed_s", "between_s"):
        off = abs(found.model.as_dict()[name] - TRUE.as_dict()[name])
        assert off < 4 * found.uncertainty[name], name
        assert found.uncertainty[name] < 0.5 * TRUE.as_dict()[name], name


def test_predictions_from_few_nodes_hold_within_what_they_say() -> None:
    few = [point for point in made_up(TRUE, noise=0.005) if point.load.nodes <= 4]
    found = fit_known_parameters(few, StepModel(overlap=TRUE.overlap))
    load = Load(64, 8, 4, 4)
    off = found.model.step_s(load) / TRUE.step_s(load) - 1
    assert abs(off) < max(4 * found.uncertainty_of(load), 0.02)


def test_what_is_given_is_not_fitted() -> None:
    found = fit_known_parameters(
        made_up(TRUE), replace(TRUE, fixed_s=0.0, between_s=0.3), known=("between_s",)
    )
    assert found.model.between_s == 0.3
    assert "between_s" not in found.free
    assert found.error > 1e-3, "a wrong bandwidth shows in the residuals"


def test_parameters_that_cannot_show_are_not_asked_for() -> None:
    one_node = [point for point in made_up(TRUE) if point.load.nodes == 1]
    assert not {"between_s", "between_latency_s"} & set(parameters_in(one_node))
    alike = [Observed("a", Load(n, 1, 4, 4), 1.0) for n in (1, 2)]
    assert parameters_in(alike) == ("per_sample_s", "between_s")
    with pytest.raises(RequestError, match="2 points cannot determine 3 parameters"):
        fit(alike, StepModel(), ("per_sample_s", "fixed_s", "between_s"))
