"""A record beside the references: the nearest first, ratios per GPU, what is not alike by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calotype.bench.references import from_records as records_module
from calotype.bench.references.from_records import read_records
from calotype.bench.references.load import by_id, distinct
from calotype.bench.references.nearest import NearestReference, compare
from calotype.bench.references.settings_diff import differences, in_words, same_gpu
from calotype.bench.references.types import Entry
from calotype.bench.references.units import measures
from calotype.core.errors import NotFoundError, RequestError
from calotype.spec.published_results import Figure, Flag, Settings
from tests.unit.cli.conftest import Calotype
from tests.unit.references.conftest import ROOT, entry, record


def beside(mine: Entry, name: str) -> NearestReference:
    [found] = [one for one in compare(mine, distinct()).besides if one.reference.id == name]
    return found


def apart(mine: Entry, name: str) -> dict[str, tuple[str, str]]:
    return {part.what: (part.ours, part.theirs) for part in beside(mine, name).differences.found}


def test_the_nearest_reference_comes_first_with_a_ratio_per_gpu() -> None:
    mine = entry("mine", 96.32, gpu="NVIDIA H100 80GB HBM3", devices=8, micro_batch_size=32)
    nearest = compare(mine, distinct()).besides[0]
    assert nearest.reference.id == "aws-mosaicml/single-node/7/P5 Throughput"
    assert nearest.ratio == pytest.approx(96.32 / (385.31 / 8))
    # 8 × 32 at once there too, but accumulated up to 2048.
    assert [part.what for part in nearest.differences.found] == ["global batch"]
    assert nearest.differences.unsaid == ("precision",)


def test_everything_that_differs_is_named_with_both_values() -> None:
    mine = entry("mine", 163.6, data="synthetic_latents", micro_batch_size=64)
    assert apart(mine, "aws-mosaicml/single-node/6/P4de Throughput") == {
        "GPU": ("NVIDIA H200", "A100 80GB (P4de)"),
        "number of GPUs": ("1", "8"),
        "inside the timed loop": ("unet", "text + unet + vae"),
        "micro-batch": ("64", "20"),
        "global batch": ("64", "2048"),
        "EMA": ("on", "off"),
    }
    assert apart(mine, "nemo/benchmark/8") == {
        "model": ("sd2", "sd1"),
        "GPU": ("NVIDIA H200", "H800 PCIE"),
        "precision": ("bf16", "fp16"),
    }


def test_what_only_one_says_is_not_taken_for_equal() -> None:
    unsaid = beside(entry(), "nemo/benchmark/8").differences.unsaid
    assert set(unsaid) == {"EMA", "resolution", "inside the timed loop"}


def test_pictures_differ_by_steps_sampler_guidance_batch_and_resolution() -> None:
    ours = Settings(width=512, height=512, steps=20, sampler="euler", cfg=7.5, batch=1)
    theirs = Settings(width=1024, height=768, steps=30, sampler="pndm", cfg=8.0, batch=4)
    found = {part.what: (part.ours, part.theirs) for part in differences(ours, theirs).found}
    assert found == {
        "resolution": ("512×512", "1024×768"),
        "steps": ("20", "30"),
        "sampler": ("euler", "pndm"),
        "guidance": ("7.5", "8.0"),
        "batch": ("1", "4"),
    }


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA H200", "H200", True),
        ("NVIDIA A100-SXM4-80GB", "A100-80", True),
        ("NVIDIA A100-SXM4-80GB", "A100 40G NVLINK", False),
        ("NVIDIA H100 PCIe", "NVIDIA H100 SXM5", False),
        ("NVIDIA H100", "H200", False),
        ("L20", "L20 emulated by L40", False),
        ("NVIDIA L40S", "L40", False),
        ("CPU Intel(R) Xeon(R) Platinum 8480C", "A100 80GB (P4de)", False),
        ("CPU AMD EPYC 7763 64-Core Processor", "CPU AMD EPYC 7763 64-Core Processor", True),
        ("NVIDIA GeForce RTX 4090", "H100", False),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", True),
        ("NVIDIA TITAN V", "H100", False),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "A100-80GB", False),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "A100-80GB MIG 1g.10gb", True),
    ],
)
def test_gpus_are_the_same_by_what_both_names_say(one: str, other: str, same: bool) -> None:
    assert same_gpu(one, other) is same
    assert same_gpu(other, one) is same


def test_nearer_batches_and_known_settings_are_nearer() -> None:
    order = [one.reference.id for one in compare(entry(micro_batch_size=64), distinct()).besides]

    def place(row: int) -> int:
        return order.index(f"aws-mosaicml/single-node/{row}/P5 Throughput")

    assert place(7) < place(4) < place(1)
    # An unnamed machine with a doubtful figure is further away than a named one with another GPU.
    assert place(7) < order.index("aws-mosaicml/progress/2")


def test_a_measurement_that_stands_twice_is_shown_once() -> None:
    shown = [one.reference for one in compare(entry(), distinct()).besides]
    assert (
        len([one for one in shown if one.settings.gpu == "H800 PCIE" and one.settings.micro_batch == 64]) == 2
    )
    assert not [one for one in shown if one.id.startswith(("nemo/version-1", "nemo/timeline"))]


def test_wrong_rows_are_compared_as_corrected_and_say_so() -> None:
    mine = entry("mine", 41.72, gpu="H20", micro_batch_size=64)
    assert beside(mine, "nemo/h20/6").ratio == pytest.approx(2)
    assert "micro-batch" not in apart(mine, "nemo/h20/6")
    assert beside(mine, "nemo/benchmark/19").theirs == pytest.approx(229 / 8)
    assert by_id("nemo/benchmark/19").flags


def test_failures_are_shown_without_a_ratio() -> None:
    assert beside(entry(), "nemo/benchmark/13").reference.outcome == "oom"
    assert beside(entry(), "nemo/benchmark/13").ratio is None
    failed = compare(entry("mine", None), distinct()).besides
    assert failed
    assert all(one.ratio is None for one in failed)


def test_other_work_and_other_models_are_no_references() -> None:
    shown = {one.reference.settings.model for one in compare(entry(), distinct()).besides}
    assert shown == {"sd1", "sd2"}
    assert {one.reference.settings.work for one in compare(entry(), distinct()).besides} == {"training"}
    assert compare(entry(base="emoji"), distinct()).besides == ()


def pictures(*figures: Figure, batch: int = 1) -> Entry:
    settings = Settings(
        work="inference", model="sdxl", gpu="H200", gpus_per_node=1, num_nodes=1, batch=batch, steps=20
    )
    return Entry("mine", "records", settings, figures)


def test_seconds_rates_and_milliseconds_are_set_in_one_unit() -> None:
    whole = pictures(Figure(what="time", value=0.5, unit="s"), batch=2)
    assert beside(whole, "performance/published/3").ratio == pytest.approx(4 * 1.471)
    step = pictures(Figure(what="step_time", value=20.0, unit="ms/step"))
    assert beside(step, "performance/peers-read/3/compile").ratio == pytest.approx(35.7 / 20)
    assert beside(step, "performance/published/2/SDXL").ratio == pytest.approx(50 / 21.6)
    assert measures(by_id("comfyui/batch/6"))["GiB"] == pytest.approx(27.6e9 / 2**30)
    # Time to compile is no time a picture takes.
    assert "samples/s/GPU" not in measures(by_id("performance/peers-read/1/compile"))


def test_committed_records_can_be_compared() -> None:
    read = read_records(sorted((ROOT / "benchmarks/2026-11-15-training").glob("*.json")))
    assert [Path(one.id).name for one in read.entries] == ["ours-in-loop.json", "ours-precomputed.json"]
    assert len(read.skipped) == 3
    loops = [one.settings.loop for one in read.entries]
    assert loops == [("text", "vae", "unet"), ("unet",)]


def test_a_folder_is_all_runs_in_it(record_file: Path, tmp_path: Path) -> None:
    line = json.dumps(json.loads(record_file.read_text())) + "\n"
    for run in ("one", "two/deeper"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "records.jsonl").write_text(line)
    (tmp_path / "runs" / "notes.jsonl").write_text("no record\n")
    from_folder, from_files = (
        read_records(places)
        for places in ([tmp_path / "runs"], sorted((tmp_path / "runs").rglob("records.jsonl")))
    )
    assert from_folder == from_files
    assert from_folder.entries


def test_bad_lines_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    good = record().model_dump_json()
    broken = json.dumps(record().model_dump(mode="json") | {"outcome": "maybe"})
    path.write_text(f'{good}\n{{"half": \n\n{broken}\n[1]\n{good}\n', encoding="utf-8")
    read = read_records([path])
    assert [one.id for one in read.entries] == [f"{path}:1", f"{path}:6"]
    assert [problem.field for problem in read.skipped] == [f"{path}:2", f"{path}:4", f"{path}:5"]
    assert "outcome" in read.skipped[1].message


def test_files_without_records_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"format": "calotype.train-benchmark.2"}', encoding="utf-8")
    with pytest.raises(RequestError, match=r"did you mean 'calotype.train-benchmark.1'"):
        read_records([path])
    with pytest.raises(NotFoundError, match="no file or folder"):
        read_records([tmp_path / "none.json"])


def test_another_kind_of_record_is_one_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def adapter(values: Mapping[str, Any], place: str) -> Entry:
        return Entry(place, "records", Settings(work="inference"), ())

    monkeypatch.setitem(records_module.ADAPTERS, "another.1", adapter)
    path = tmp_path / "another.json"
    path.write_text('{"format": "another.1"}', encoding="utf-8")
    assert read_records([path]).entries[0].settings.work == "inference"


def test_the_command_shows_a_table(
    calotype: Calotype, record_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    seen = calotype("bench", "compare", record_file, "--limit", 4)
    assert seen.code == 0
    assert "114 samples/s/GPU" in seen.out
    assert "performance/peers-read/5/eager" in seen.out
    assert "1.73×" in seen.out
    assert "--all shows them" in seen.out


def test_what_a_source_leaves_to_defaults_is_said_in_words() -> None:
    assert in_words({"gpus_per_node", "width", "height", "loop", "data"}) == [
        *("data", "number of GPUs", "resolution", "inside the timed loop")
    ]
    taken = {name for row in distinct() for name in row.inferred}
    assert taken <= set(Settings.model_fields)
    assert not [told for told in in_words(taken) if "_" in told]


def test_the_command_speaks_json_and_markdown(calotype: Calotype, record_file: Path) -> None:
    [values] = json.loads(calotype("bench", "compare", record_file, "--json", "--all").out)
    assert values["left_out"] == 0
    found = {one["reference"]: one for one in values["references"]}
    assert found["performance/peers-read/5/eager"]["ratio"] == pytest.approx(114 / 66)
    assert {"what": "EMA", "ours": "on", "theirs": "off"} in found["performance/published/10"][
        "not_comparable"
    ]
    assert found["nemo/benchmark/9"]["flags"]
    text = calotype("bench", "compare", record_file, "--markdown", "--limit", 2).out
    assert text.startswith("## ")
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 4


def test_the_command_names_what_it_skips(calotype: Calotype, record_file: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    seen = calotype("bench", "compare", record_file, tmp_path / "notes.json", "--json")
    assert seen.code == 0
    assert "notes.json: is not a record" in seen.err
    assert len(json.loads(seen.out)) == 1
    assert calotype("bench", "compare", tmp_path / "none.json").code == 4


def test_a_record_that_lacks_parts_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    bare = record().model_dump(mode="json") | {"recipe": {}}
    path.write_text(f"{json.dumps(bare)}\n{record().model_dump_json()}\n", encoding="utf-8")
    read = read_records([path])
    assert len(read.entries) == 1
    assert "lacks 'model'" in read.skipped[0].message


def test_what_failed_has_no_measures_whatever_is_written_beside_it() -> None:
    assert measures(replace(entry(), outcome="error")) == {}


def test_a_doubtful_row_is_further_away_than_its_twin() -> None:
    sound = by_id("aws-mosaicml/single-node/7/P5 Throughput")
    flag = Flag(about="time", certainty="doubtful", reason="for the test")
    doubtful = replace(sound, id="doubtful", flags=(flag,))
    assert [one.reference.id for one in compare(entry(), [doubtful, sound]).besides] == [sound.id, "doubtful"]


def test_a_large_model_is_not_set_beside_a_small_one() -> None:
    mine = pictures(Figure(what="time", value=0.5, unit="s"))
    assert {one.reference.settings.model for one in compare(mine, distinct()).besides} == {"sdxl"}


def test_rounds_of_one_point_count_as_their_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def adapter(values: Mapping[str, Any], place: str) -> Entry:
        ended = values["outcome"]
        figures = (Figure(what="time", value=values["time"], unit="s"),) if ended == "ok" else ()
        return Entry(place, "records", Settings(), figures, outcome=ended, trial_of="point")

    monkeypatch.setitem(records_module.ADAPTERS, "rounds.1", adapter)
    path = tmp_path / "rounds.jsonl"
    rounds: list[dict[str, Any]] = [
        {"outcome": "ok", "time": 1.0},
        {"outcome": "oom"},
        {"outcome": "ok", "time": 2.0},
    ]
    path.write_text("\n".join(json.dumps({"format": "rounds.1", **one}) for one in rounds), encoding="utf-8")
    mean, failed = read_records([path]).entries
    assert (mean.id, mean.trials, mean.figures[0].value) == ("point", 2, 1.5)
    assert failed.outcome == "oom"


def test_training_a_lora_is_not_training_a_unet() -> None:
    assert apart(entry(train="lora"), "nemo/benchmark/8")["what is trained"] == ("lora", "unet")
    assert compare(entry(width=2), distinct()).besides == ()
