"""Each pass and each switch, taken away and alone: what is asked, and what is said of it."""

from __future__ import annotations

import pytest

from calotype.bench.ablation import (
    SWITCHES,
    Gain,
    Variant,
    measure_gains,
    pass_variants,
    switch_variants,
    variant_points,
)
from calotype.bench.sweep.points import parse_sweep
from calotype.bench.sweep.ratios import Ratio
from calotype.core.errors import NotFoundError, RequestError
from calotype.engine.presets import PRESETS, all_passes, pass_names
from calotype.spec.bench_job import InferenceJob, TrainJob
from calotype.spec.records.measurement import PeakMemory
from calotype.train.recipes import load_recipe
from tests.unit.bench.records.conftest import made_up


def passes(variants: list[Variant], label: str, device_type: str = "cuda") -> list[str]:
    [found] = [variant for variant in variants if variant.label == label]
    return list(pass_names(str(found.settings["preset"]), device_type))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_variant_of_every_preset_is_a_list_that_can_be_applied(preset: str) -> None:
    variants = pass_variants(preset, "cuda")
    whole = list(pass_names(preset, "cuda"))
    assert len(variants) == 2 + 2 * len(whole)
    assert passes(variants, "all") == whole
    assert passes(variants, "none") == []
    for name in whole:
        assert name not in passes(variants, f"without {name}")
        assert name in passes(variants, f"only {name}")
        assert set(passes(variants, f"without {name}")) < set(whole)


def test_what_builds_on_a_pass_goes_with_it_and_brings_it_along() -> None:
    variants = pass_variants("fast", "cuda")
    assert passes(variants, "without own_forward") == ["own_decoder", "text_graph"]
    assert passes(variants, "only cuda_graph") == ["own_forward", "cuda_graph"]
    others = [name for name in pass_names("fast", "cuda") if name != "cuda_graph"]
    assert passes(variants, "without cuda_graph") == others
    # A GPU's passes are not varied where there is none.
    assert "only cuda_graph" not in {variant.label for variant in pass_variants("fast", "cpu")}


def test_a_list_of_passes_is_a_preset() -> None:
    listed = all_passes("passes:own_forward+fused_geglu")
    assert [one.name for one in listed] == ["own_forward", "fused_geglu"]
    assert all_passes("passes:") == ()
    with pytest.raises(NotFoundError, match="builds on 'own_forward'"):
        all_passes("passes:fused_geglu+own_forward")
    with pytest.raises(NotFoundError, match="own_forward"):
        all_passes("passes:own_forwards")


def test_switches_are_turned_the_other_way() -> None:
    recipe = load_recipe("bench-sd1", ["model.compile=true"]).recipe
    found = {variant.label: dict(variant.settings) for variant in switch_variants(recipe)}
    assert found["all"] == {}
    assert found["without compile"] == {"model.compile": False}
    assert found["without channels_last"] == {"model.channels_last": False}
    assert found["with ema"] == {"model.use_ema": True}
    assert found["without attention"] == {"model.attention": "math"}
    only = found["only compile"]
    assert only == {**found["none"], "model.compile": True}
    assert set(only) == {switch.key for switch in SWITCHES.values()}
    some = switch_variants(recipe, ["ema"])
    assert [variant.label for variant in some] == ["all", "none", "with ema", "only ema"]
    with pytest.raises(RequestError, match="compile"):
        switch_variants(recipe, ["compiled"])


def test_variants_that_come_to_the_same_are_measured_once() -> None:
    sweep = parse_sweep({"kind": "inference", "settings": {"steps": 2}})
    points = variant_points(sweep, pass_variants("fast", "cpu"), "cpu")
    shared = points["without own_forward"]
    assert shared == points["only own_decoder"]
    assert shared.settings == {"variant": "without own_forward, only own_decoder"}
    only = points["only fused_geglu"]
    assert isinstance(only.job, InferenceJob)
    assert (only.name, only.job.request.steps) == ("only fused_geglu", 2)
    assert only.settings == {"variant": "only fused_geglu"}
    recipe = load_recipe("bench-sd1").recipe
    train = parse_sweep({"kind": "train", "settings": {"recipe": "bench-sd1"}})
    job = variant_points(train, switch_variants(recipe, ["fused"]))["only fused"].job
    assert isinstance(job, TrainJob)
    assert (job.recipe.optimizer.fused, job.recipe.model.channels_last) == (True, False)


def test_what_each_gives() -> None:
    variants = [
        Variant("all", None, {"preset": "passes:own_forward+own_decoder"}),
        Variant("none", None, {"preset": "passes:"}),
        Variant("without", "own_decoder", {"preset": "passes:own_forward"}),
        Variant("only", "own_decoder", {"preset": "passes:own_decoder"}),
        Variant("with", "int8", {"preset": "passes:own_forward+own_decoder+int8"}),
        Variant("only", "int8", {"preset": "passes:own_forward+int8"}),
    ]
    points = variant_points(parse_sweep({"kind": "inference"}), variants, "cpu")
    seconds = {"all": 1.0, "none": 4.0, "without own_decoder": 1.5, "only own_decoder": 2.0, "with int8": 0.5}
    mebibytes = {"all": 100, "none": 90, "without own_decoder": 120, "only own_decoder": 80, "with int8": 60}
    measurements = [
        made_up(label, seconds[label], id=points[label].id, memory=[_memory(mebibytes[label])])
        for label in seconds
    ]
    measurements.append(made_up("only int8", id=points["only int8"].id, status="oom", message="no room"))
    decoder, int8, together = measure_gains(variants, points, measurements)
    assert decoder.in_company
    assert decoder.alone
    assert int8.in_company
    assert (decoder.in_company.value, decoder.alone.value, int8.in_company.value) == (1.5, 2.0, 2.0)
    assert together.cells()["gives alone"] == "4.00× (once) ?"
    assert decoder.cells()["memory MiB"] == "-20"
    assert decoder.cells()["memory alone MiB"] == "-10"
    assert int8.cells()["memory MiB"] == "-40"
    assert (int8.alone, int8.failures) == (None, ("only int8: oom",))


def test_what_the_spread_does_not_bear_out_is_named_among_all_and_alone() -> None:
    certain, doubtful = Ratio(2.0, 1.9, 2.1, 3), Ratio(1.02, 0.97, 1.05, 3)

    def names(among_all: Ratio | None, alone: Ratio | None) -> list[str]:
        return Gain("int8", among_all, None, alone, None, ()).doubtful

    assert names(doubtful, certain) == ["int8"]
    assert names(certain, doubtful) == ["int8 alone"]
    assert names(doubtful, doubtful) == ["int8", "int8 alone"]
    assert names(certain, None) == []


def _memory(mebibytes: int) -> PeakMemory:
    size = mebibytes * 2**20
    return PeakMemory(allocated_bytes=size, reserved_bytes=size, device_bytes=None, total_bytes=2**37)
