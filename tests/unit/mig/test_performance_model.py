"""The planner's figures are the engine's and the benchmarks', and a prediction says that it is one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calotype.core.errors import DoesNotFitError, NotFoundError, RequestError
from calotype.engine import memory_planner as engine_memory
from calotype.engine.memory_planner import Extras, MemoryBudget, MemoryDemand
from calotype.mig import performance_model
from calotype.mig.measured_speeds import with_records
from calotype.mig.performance_model import model_of_card, predict, shipped
from calotype.mig.profiles import GIB, model_named
from calotype.models.catalogue import architecture, names
from calotype.models.model import vae_dtype
from calotype.serve.lifecycle.config import DeploymentConfig

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("row", shipped().memory, ids=lambda row: str(row.model))
def test_memory_is_the_engines_own_estimate(row: performance_model.ModelMemory) -> None:
    """For what a deployment runs if nobody says otherwise."""
    import torch

    from calotype.engine.passes import NetworkBuilder
    from calotype.engine.presets import pass_names, passes_named

    model = architecture(row.model)
    in_vae = vae_dtype(model, torch.float16).itemsize
    live: Any = SimpleNamespace(architecture=model, dtype=torch.float16, device=torch.device("cuda"))
    assembly = NetworkBuilder(live)
    for one in passes_named(pass_names(DeploymentConfig.model_fields["preset"].default, "cuda")):
        one.apply(assembly)
    assert (assembly.graphed, assembly.own_decoder, assembly.prompts_once) == (True, True, True)
    extras = Extras(
        resident_bytes=assembly.resident_bytes,
        graphed=True,
        decoder_dtype_bytes=2,
        prompt_bytes=engine_memory.prompt_bytes(model, 2),
    )
    weights = engine_memory.weight_bytes(model, 2, in_vae)
    assert (row.side, row.weights_bytes) == (model.native_size, weights)
    for batch in (1, 4, 16):
        demand = MemoryDemand(model.native_size, model.native_size, batch, batch_size=batch, tile_vae=False)
        free = (
            row.needed_bytes(batch)
            - performance_model.CONTEXT_BYTES
            - int(weights / performance_model.HEADROOM)
        )
        # It fits in what the figure says, and not in a little less.
        plan = engine_memory.plan_memory(model, MemoryBudget(free + 2, "a slice", 2, in_vae), demand, extras)
        assert plan.batch_size == batch
        with pytest.raises(DoesNotFitError):
            engine_memory.plan_memory(
                model, MemoryBudget(int(free * 0.99), "a slice", 2, in_vae), demand, extras
            )


def test_the_engines_allowances_are_ours() -> None:
    assert performance_model.WORKSPACE_BYTES == engine_memory.WORKSPACE_BYTES
    assert performance_model.HEADROOM == engine_memory.HEADROOM
    assert {row.model for row in shipped().memory} == set(names())


def test_speeds_are_the_committed_benchmarks() -> None:
    # The newer run counts; not everything was run again in that precision.
    runs = ("2026-11-15-inference", "2026-11-16-engine")
    fast = [json.loads((ROOT / "benchmarks" / run / "results.json").read_text()) for run in runs]
    measured = {
        (row["work"]["model"], row["work"]["batch"]): row["images_per_s"] * row["work"]["steps"]
        for run in fast
        for row in run["rows"].values()
        if (row["work"]["system"], row["work"]["precision"]) == ("fast", "fp16")
    }
    plain = json.loads((ROOT / "benchmarks/2026-11-15-baseline/results.json").read_text())
    [row] = plain["sd2-base"]["speed"]
    measured["sd2-base", row["work"]["batch"]] = row["calotype_images_per_s"] * row["work"]["steps"]
    assert {(row.model, row.batch): row.per_s for row in shipped().speeds} == pytest.approx(
        measured, rel=1e-3
    )
    for environment in (*(run["environment"] for run in fast), plain["environment"]):
        card = environment["machine"]["gpus"][0]
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
    assert best.per_s == pytest.approx(240.668 * 60 / 132)
    assert "predicted in" in best.basis


def test_training_records_bring_memory_and_speed(tmp_path: Path) -> None:
    raw = json.loads((ROOT / "benchmarks/2026-11-15-training/ours-in-loop.json").read_text())
    path = tmp_path / "row.json"
    path.write_text(json.dumps(raw))
    known = with_records(shipped(), [path])
    needed, source = known.needed("train:sd2-base", 64)
    assert needed == raw["memory"][0]["reserved_bytes"] + performance_model.CONTEXT_BYTES
    assert source == "the record row.json at batch 64"
    gpu = model_named("H200-141GB")
    half = predict(known, gpu, gpu.profile("3g.71gb"), "train:sd2-base", 64)
    assert half.per_s == pytest.approx(raw["window"]["samples_per_device_s"] * 60 / 132)
    assert half.unit == "samples a second"
    with pytest.raises(NotFoundError, match="recorded up to batch 64, not at 128"):
        known.needed("train:sd2-base", 128)


def row(batch: int, per_s: float, side: int = 512, **changes: object) -> str:
    """A row as `calotype bench inference` writes it, of sd15 on an A100."""
    base = json.loads((ROOT / "benchmarks/2026-11-15-serving/h200.jsonl").read_text().splitlines()[0])
    a100 = {"name": "NVIDIA A100-SXM4-80GB", "memory_total_bytes": 80 * GIB, "num_sms": 108}
    h200 = {"name": "NVIDIA H200", "memory_total_bytes": 140 * GIB, "num_sms": 132}
    machine = {"fingerprint": {"machine": {"gpus": [h200, a100]}}}
    shared = {"kind": "inference", "device": a100["name"], **machine}
    memory = {"allocated_bytes": 1, "reserved_bytes": 5 * GIB, "device_bytes": None, "total_bytes": 80 * GIB}
    request = {"width": side, "height": side, "steps": 20}
    told = {"request": request, "samples_per_unit": batch, "samples_per_s": per_s, "memory": [memory]}
    return json.dumps({**base, **shared, **told, **changes}, ensure_ascii=False)


def test_a_sweeps_records_stand_in_for_what_came_along(tmp_path: Path) -> None:
    """Rows as `calotype bench inference` writes them; those of other work and other sizes are passed over."""
    rows = [
        row(4, 2.0, preset="baseline"),
        row(4, 5.0),
        row(1, 3.0),
        row(8, 9.0, side=768),
        row(4, 9.0, request={"width": 512, "height": 512, "steps": 20, "cfg": 1.0}),
        row(8, 9.0, status="oom", samples_per_s=None),
        row(8, 9.0, system="diffusers-eager"),
        row(8, 9.0, device="NVIDIA A100-SXM4-80GB MIG 2g.20gb"),
        row(8, 9.0, device="CPU Intel(R) Xeon(R) Platinum 8480C", memory=[]),
    ]
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(rows) + "\n")
    known = with_records(shipped(), [path])
    gpu = model_named("A100-80GB")
    half = predict(known, gpu, gpu.profile("3g.40gb"), "sd15", 4)
    assert half.per_s == pytest.approx(5.0 * 20 * 42 / 98)
    assert "records.jsonl (fast)" in half.basis
    # What was measured at this very batch comes before the estimate.
    assert known.needed("sd15", 4) == (
        5 * GIB + performance_model.CONTEXT_BYTES,
        "the record records.jsonl (fast) at batch 4",
    )
    assert known.needed("sd15", 8)[1] == performance_model.ESTIMATE
    # The other card's figures are still there.
    assert predict(known, model_named("H200-141GB"), model_named("H200-141GB").whole, "sd15", 16).per_s
    path.write_text("\n".join([*rows[3:5], rows[-1]]))
    with pytest.raises(RequestError, match="no speed of a whole GPU"):
        with_records(shipped(), [path])


def test_lines_in_pieces_are_told_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As `records.jsonl` is after its writer was killed, with a prompt of several lines before."""
    request = {"width": 512, "height": 512, "steps": 20, "prompt": "a hill\u2028and\x85a tree"}
    whole = row(4, 5.0, request=request).encode()
    path = tmp_path / "records.jsonl"
    path.write_bytes(whole + b"\n" + whole[: whole.index("\u2028".encode()) + 1])
    known = with_records(shipped(), [path])
    gpu = model_named("A100-80GB")
    assert predict(known, gpu, gpu.whole, "sd15", 4).per_s == pytest.approx(5.0 * 20)
    assert f"{path}:2: " in caplog.text
    path.write_bytes(whole[:100])
    with pytest.raises(RequestError, match="is not a file of records"):
        with_records(shipped(), [path])


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
