"""The planner's figures are the engine's and the benchmarks', and a prediction says that it is one."""

import json
from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError, RequestError
from calotype.engine import memory as engine_memory
from calotype.engine.memory import Budget, Demand
from calotype.mig import figures
from calotype.mig.figures import model_of_card, predict, shipped, with_records
from calotype.mig.profiles import GIB, model_named
from calotype.models.catalogue import architecture, names
from calotype.models.model import vae_dtype

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("row", shipped().memory, ids=lambda row: str(row.model))
def test_memory_is_the_engines_own_estimate(row: figures.ModelMemory) -> None:
    import torch

    model = architecture(row.model)
    in_vae = vae_dtype(model, torch.float16).itemsize
    weights = sum(
        count * (in_vae if part == "vae" else 2) for part, count in model.parameter_counts().items()
    )
    assert (row.side, row.weights_bytes) == (model.native_size, weights)
    for batch in (1, 4, 16):
        needed = row.needed_bytes(batch) - figures.CONTEXT_BYTES
        budget = Budget(needed + 2, "a slice", 2, in_vae)
        left = Budget(budget.free_bytes - int(weights / figures.HEADROOM), "a slice", 2, in_vae)
        demand = Demand(model.native_size, model.native_size, batch, batch_size=batch, tile_vae=False)
        peak = engine_memory.plan(model, left, demand).peak_bytes
        assert needed < 1.25 * (weights + peak + figures.WORKSPACE_BYTES), "it fits, with little to spare"


def test_the_engines_allowances_are_ours() -> None:
    assert figures.WORKSPACE_BYTES == engine_memory.WORKSPACE_BYTES
    assert figures.HEADROOM == engine_memory.HEADROOM
    assert {row.model for row in shipped().memory} == set(names())


def test_speeds_are_the_committed_benchmark() -> None:
    raw = json.loads((ROOT / figures.BASELINE / "results.json").read_text())
    measured = {
        (row["work"]["model"], row["work"]["batch"]): row["calotype_images_per_s"] * row["work"]["steps"]
        for model in ("sd15", "sd2-base", "sdxl")
        for row in raw[model]["speed"]
    }
    assert {(row.model, row.batch): row.per_s for row in shipped().speeds} == pytest.approx(
        measured, rel=1e-3
    )
    card = raw["environment"]["machine"]["gpus"][0]
    known = model_of_card(card["name"], card["memory_total_bytes"])
    assert known is not None
    assert {row.gpu for row in shipped().speeds} == {known.name}


def test_the_texts_slices_are_predicted_two_to_one() -> None:
    gpu = model_named("A100-80GB")
    wide, narrow = (
        predict(shipped(), gpu, gpu.profile(name), "sd15", 1) for name in ("2g.20gb", "1g.10gb+me")
    )
    assert wide.share / narrow.share == pytest.approx(2)
    assert wide.share == pytest.approx(2 / 7)
    assert wide.per_s is None, "nobody measured an A100 here"
    assert "predicted from 28 of 98 SMs; no record of sd15 on A100-80GB" in wide.basis


def test_a_slice_is_never_predicted_faster_than_the_whole_card_at_the_same_batch() -> None:
    gpu = model_named("H200-141GB")
    whole = next(row.per_s for row in shipped().speeds if (row.model, row.batch) == ("sd15", 1))
    for profile in gpu.profiles:
        expected = predict(shipped(), gpu, profile, "sd15", 1)
        assert expected.per_s is not None
        assert expected.low_per_s is not None
        assert expected.high_per_s is not None
        assert expected.low_per_s <= expected.per_s <= expected.high_per_s <= whole
    best = predict(shipped(), gpu, gpu.profile("3g.71gb"), "sd15", 16)
    assert best.per_s == pytest.approx(155.268 * 60 / 132)
    assert "predicted in" in best.basis


def test_training_records_bring_memory_and_speed(tmp_path: Path) -> None:
    raw = json.loads((ROOT / "benchmarks/2026-11-15-training/ours-in-loop.json").read_text())
    del raw["seconds_in_all"]  # the benchmark script's own addition
    path = tmp_path / "row.json"
    path.write_text(json.dumps(raw))
    known = with_records(shipped(), [path])
    needed, source = known.needed("train:sd2-base", 64)
    assert needed == raw["memory"][0]["reserved_bytes"] + figures.CONTEXT_BYTES
    assert source == "the record row.json at batch 64"
    gpu = model_named("H200-141GB")
    half = predict(known, gpu, gpu.profile("3g.71gb"), "train:sd2-base", 64)
    assert half.per_s == pytest.approx(raw["window"]["samples_per_device_s"] * 60 / 132)
    assert half.unit == "samples a second"
    with pytest.raises(NotFoundError, match="recorded up to batch 64, not at 128"):
        known.needed("train:sd2-base", 128)


def test_cards_are_recognised_by_their_full_names() -> None:
    expected = {
        ("NVIDIA A100-SXM4-40GB", 40 * GIB): "A100-40GB",
        ("NVIDIA A100 80GB PCIe", 80 * GIB): "A100-80GB",
        ("NVIDIA H200", 140 * GIB): "H200-141GB",
        ("NVIDIA H100 PCIe", 80 * GIB): "H100-80GB-PCIe",
        ("NVIDIA H100 NVL", 94 * GIB): "H100-94GB-NVL",
        ("NVIDIA B200", 180 * GIB): "B200-180GB",
    }
    for (name, memory), gpu in expected.items():
        found = model_of_card(name, memory)
        assert found is not None
        assert found.name == gpu
    assert model_of_card("NVIDIA GeForce RTX 4090", 24 * GIB) is None


def test_unknown_work_names_what_is_known() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'sdxl'"):
        shipped().needed("sdxxl", 1)


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(RequestError, match="required"):
        with_records(shipped(), [tmp_path / "no.json"])
