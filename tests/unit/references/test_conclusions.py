"""Conclusions: the sources' own are derived again from their tables, and ours are right on known numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calotype.bench.conclusions.linear_fits import fit_line
from calotype.bench.conclusions.published_claims import rounds_to, verdicts
from calotype.bench.conclusions.run import conclude, only
from calotype.bench.conclusions.scaling import fit_serial_fraction
from calotype.bench.conclusions.types import Statement
from calotype.bench.references.load import by_id, sources
from tests.unit.cli.conftest import Calotype
from tests.unit.references.conftest import entry

# Each conclusion that a source states: what its tables give, and whether it follows. The quotients are of the
# figures as they stand in the texts.
STATED: dict[tuple[str, str], tuple[float | None, bool | None]] = {
    ("nemo", "l20-of-a100-per-gpu"): (100 * 17.20 / 30.50, True),
    ("nemo", "l20-of-a100-per-node"): (100 * 127.0 / 229, True),
    ("nemo", "node-below-gpu"): (100 * (127.0 / 229 - 17.20 / 30.50), False),
    ("nemo", "l20-over-emulated"): (17.10 / 16.60, True),
    ("nemo", "l20-best-per-gpu"): (17.20, False),
    ("nemo", "l20-best-per-node"): (127.0, False),
    ("nemo", "h20-over-l20-per-gpu"): (20.86 / 17.20, True),
    ("nemo", "h20-over-l20-per-node"): (161.63 / 127.0, True),
    ("nemo", "h20-link"): (None, None),
    ("mig-tensorrt", "int8-over-fp16"): (None, None),
    ("mig-tensorrt", "int8-quality-same"): (None, None),
    ("aws-mosaicml", "sdpa-fits-32"): (385.31, True),
    ("aws-mosaicml", "scales-to-64-nodes"): (None, None),
    ("aws-mosaicml", "ratio-4-ema"): (189.28 / 142.69, False),
    ("aws-mosaicml", "ratio-8-ema"): (289.19 / 173.89, True),
    ("aws-mosaicml", "ratio-12-ema"): (329.55 / 185.18, True),
    ("aws-mosaicml", "ratio-16-ema"): (353.81 / 192.85, True),
    ("aws-mosaicml", "ratio-20-ema"): (358.68 / 197.47, True),
    ("aws-mosaicml", "ratio-20-no-ema"): (361.15 / 197.90, False),
    ("aws-mosaicml", "ratio-32-ema"): (385.31 / 204.22, True),
    (
        "deepspeed-mii",
        "mii-over-baseline",
    ): (
        (2.3496 + 2.3371 + 2.3185 + 2.3274 + 2.3148) / (1.2683 + 1.2635 + 1.2683 + 1.2786 + 1.2626),
        True,
    ),
    ("deepspeed-mii", "under-one-second"): (1.2626, False),
    ("deepspeed-mii", "a100-40-alike"): (None, None),
    ("comfyui", "text-length-no-effect"): (None, None),
    ("comfyui", "cfg-no-effect"): ((14.82 - 14.16) / 14.16, True),
    ("comfyui", "steps-alike"): (None, None),
    ("comfyui", "black-before-8-steps"): (None, None),
}
VERDICTS = {(verdict.source, verdict.claim.name): verdict for verdict in verdicts()}


def test_no_stated_conclusion_is_left_out() -> None:
    assert VERDICTS.keys() == STATED.keys()
    assert sum(len(source.claims) for source in sources()) + 7 == len(VERDICTS)


@pytest.mark.parametrize("name", STATED)
def test_the_sources_conclusions_are_derived_again(name: tuple[str, str]) -> None:
    value, follows = STATED[name]
    verdict = VERDICTS[name]
    assert verdict.follows is follows
    assert verdict.derived == (None if value is None else pytest.approx(value, rel=1e-9))


def test_a_conclusion_is_flagged_as_wrong_where_it_does_not_follow_and_only_there() -> None:
    for verdict in VERDICTS.values():
        wrong = any(flag.certainty == "wrong" for flag in verdict.claim.flags)
        assert wrong is (verdict.follows is False), verdict.claim.name
        # What cannot be derived says why.
        assert verdict.follows is not None or verdict.claim.flags, verdict.claim.name


def test_arithmetic_names_its_rows() -> None:
    assert VERDICTS["nemo", "l20-of-a100-per-gpu"].arithmetic == (
        "17.2 (nemo/l20/2) / 30.5 (nemo/benchmark/16) = 0.5639"
    )


@pytest.mark.parametrize(
    ("derived", "stated", "same"),
    [
        (56.393, 56.4, True),
        (56.34, 56.4, False),
        (1.8368, 1.8, True),
        (385.31, 385.0, True),
        (127, 229, False),
    ],
)
def test_rounding_decides_to_as_many_digits_as_are_stated(derived: float, stated: float, same: bool) -> None:
    assert rounds_to(derived, stated) is same


REFERENCES = conclude().statements


def about(topic: str, *words: str, source: str | None = None) -> Statement:
    found = [
        statement
        for statement in REFERENCES
        if statement.topic == topic
        and all(word in statement.says for word in words)
        and source in (None, statement.source)
    ]
    assert len(found) == 1, [statement.says for statement in found]
    return found[0]


def test_gpus_are_set_against_each_other_at_their_best_and_at_equal_batches() -> None:
    ratio = about("GPU against GPU", "1 × A100 40G NVLINK is", "as fast as 1 × L20 (")
    assert ratio.value == pytest.approx(30.50 / 17.20)
    assert "56.4%" in ratio.says
    assert ratio.inputs == ("nemo/benchmark/16", "nemo/l20/2")
    assert "at batch 16 on both: 29 / 17.1 = 1.696" in ratio.notes
    node = about("GPU against GPU", "8 × H20 is", "as fast as 8 × L20 (")
    assert node.value == pytest.approx(161.63 / 127)


@pytest.mark.parametrize(
    ("words", "efficiency"),
    [
        ("2 × H800 PCIE at micro-batch 64", 42.64 / 44.07),
        ("4 × A100 40G NVLINK at micro-batch 16", 28.18 / 29.00),
        ("8 × A100 40G NVLINK at micro-batch 16", 222.47 / 8 / 29.00),
        ("8 × L20 at micro-batch 16", 124.0 / 8 / 17.10),
        ("8 × L20 at micro-batch 20", 127.0 / 8 / 17.20),
        ("8 × L20 at micro-batch 24", 123.0 / 8 / 16.50),
        ("8 × L20 at micro-batch 28", 125.0 / 8 / 16.50),
        ("8 × H20 at micro-batch 20", 157.02 / 8 / 19.73),
        ("8 × H20 at micro-batch 32", 161.63 / 8 / 20.29),
        ("16 × unnamed GPU at micro-batch 4", 10.99 / 12.45 / 2),
    ],
)
def test_scaling_efficiency(words: str, efficiency: float) -> None:
    statement = about("scaling", words)
    assert statement.value == pytest.approx(efficiency)


def test_only_runs_that_gained_have_a_serial_fraction() -> None:
    fitted = [s.says.partition(":")[0] for s in REFERENCES if "serial fraction" in s.says]
    assert fitted == ["H100 80GB (P5)", "H800 PCIE", "A100 40G NVLINK", "L20", "H20"]


def test_the_serial_fraction_of_the_a100_by_another_solver() -> None:
    added = np.array([[3.0], [7.0]])
    lost = np.array([29.0 / 28.18 - 1, 29.0 / (222.47 / 8) - 1])
    [fraction], *_ = np.linalg.lstsq(added, lost, rcond=None)
    statement = about("scaling", "A100", "serial fraction")
    assert statement.value == pytest.approx(fraction)
    residual = float(np.sqrt(np.mean((lost - added[:, 0] * fraction) ** 2)))
    assert f"residual {residual:.4f}" in statement.says


def test_a_known_serial_fraction_is_found_without_residual() -> None:
    counts = [2.0, 4.0, 8.0, 64.0]
    exact = [1 / (1 + 0.05 * (count - 1)) for count in counts]
    fitted = fit_serial_fraction(counts, exact)
    assert fitted.value == pytest.approx(0.05)
    assert fitted.residual == pytest.approx(0, abs=1e-12)
    bent = fit_serial_fraction(counts, [exact[0] * 0.8, *exact[1:]])
    assert bent.residual > 0.01
    assert fit_serial_fraction([8.0], [exact[2]]).value == pytest.approx(0.05)


def test_lines_by_another_solver() -> None:
    steps, times = [1, 2, 4, 8, 16, 32, 64], [0.85, 0.63, 1.06, 2.44, 3.91, 7.65, 13.41]
    slope, fixed = np.polyfit(steps, times, 1)
    line = fit_line(steps, times)
    assert line.slope == pytest.approx(slope)
    assert line.fixed == pytest.approx(fixed)
    errors = np.array(times) - fixed - slope * np.array(steps)
    assert line.residual == pytest.approx(float(np.sqrt(np.mean(errors**2))))
    assert line.worst == pytest.approx(float(np.abs(errors).max()))


def test_time_grows_with_steps_and_memory_with_pictures_as_the_tables_have_it() -> None:
    steps = next(s for s in REFERENCES if s.says.startswith("time by steps"))
    # 0.2 s a step on 14 s for 64: straight but for the first steps, which the residual tells.
    assert steps.value == pytest.approx(0.205, abs=1e-3)
    assert "residual 0.3 s" in steps.says
    memory = about("straight lines", "memory by batch", source="comfyui")
    slope = np.polyfit([1, 2, 4, 8, 16, 32], [7.4, 7.6, 8.8, 9.6, 18.3, 27.6], 1)[0] * 1e9 / 2**30
    assert memory.value == pytest.approx(slope)
    assert memory.unit == "GiB per image"
    size = about("straight lines", "step time by resolution")
    pixels = [0.25, 0.5625, 0.9375, 1.0]
    assert size.value == pytest.approx(np.polyfit(pixels, [0.205, 0.357, 0.492, 0.534], 1)[0])


def test_memory_a_training_sample_takes_leaves_out_accumulated_batches() -> None:
    memory = about("straight lines", "memory by micro-batch", "H800")
    assert memory.inputs == tuple(f"nemo/benchmark/{row}" for row in (3, 4, 6, 7, 8))
    used = np.array([21047, 24929, 32893, 48787, 80747]) / 1024
    assert memory.value == pytest.approx(np.polyfit([4, 8, 16, 32, 64], used, 1)[0])


def test_gains_of_fewer_bits_and_of_another_system() -> None:
    assert about("precision", "INT8 over FP16 on H100").value == 1.2
    assert about("precision", "INT8 over FP16 on H200").value == pytest.approx(927 / 781)
    assert about("precision", "INT8 over BF16 on A100").value == pytest.approx(2.52 / 2.43)
    mii = about("one thing changed", "DeepSpeed-MII")
    assert mii.value == pytest.approx(2.32948 / 1.26826)
    eager = about("one thing changed", "torch.compile, NCHW")
    assert eager.value == pytest.approx(96.1 / 66)


def test_switches_of_the_ablation_against_its_baseline() -> None:
    slower = about("one thing changed", "model.channels_last=False")
    assert slower.value == pytest.approx(24.0 / 29.0)
    assert "memory 32.41 - 31.81 = +0.60 GiB" in slower.notes
    assert about("one thing changed", "capture_cudagraph_iters=10", "inductor").value is None
    flash = about("one thing changed", "use_flash_attention=False")
    assert flash.value is None
    assert "no run without it" in flash.says


def test_batches_guidance_and_what_is_outside_the_steps() -> None:
    assert about("shapes", "1 × A100 is fastest at batch 32").value == pytest.approx(32 / 23.35 * 3.72)
    assert about("shapes", "guidance between 7 and 11").value == pytest.approx((14.82 - 14.16) / 14.16)
    outside = about("shapes", "comfyui/default/1")
    assert outside.value == pytest.approx((3.72 - 20 * 0.147) / 3.72)
    assert outside.arithmetic == "(3.72 - 20 × 0.147) / 3.72 = 0.2097"


def test_every_statement_shows_its_arithmetic_and_its_rows() -> None:
    for statement in REFERENCES:
        assert statement.value is None or statement.arithmetic, statement
        assert all(by_id(name) for name in statement.inputs if "deepspeed" not in name)


def test_doubtful_rows_are_named_beside_what_follows_from_them() -> None:
    assert any("125.8" in note for note in about("scaling", "8 × L20 at micro-batch 16").notes)


def test_records_are_concluded_from_like_references() -> None:
    runs = [
        entry("one", 100.0, micro_batch_size=32),
        entry("four", 90.0, micro_batch_size=32, devices=4),
        entry("bare", 101.0, micro_batch_size=32, use_ema=False),
        entry("compiled", 150.0, micro_batch_size=32, compile=True),
        entry("latents", 140.0, micro_batch_size=32, data="synthetic_latents"),
        entry("other", 50.0, micro_batch_size=32, gpu="NVIDIA A100-SXM4-80GB"),
        entry("failed", None, micro_batch_size=64),
    ]
    found = only(conclude(runs), ["records"], [])
    says = {s.inputs: s for s in found.statements if s.topic != "against references"}
    assert says["four", "one"].value == pytest.approx(0.9)
    assert says["one", "four"].value == pytest.approx((1 / 0.9 - 1) / 3)
    assert says["one", "bare"].value == pytest.approx(100 / 101)
    assert says["compiled", "bare"].value == pytest.approx(150 / 101)
    assert says["latents", "one"].value == pytest.approx(1.4)
    assert says["one", "other"].value == pytest.approx(2.0)
    near = [s for s in found.statements if s.topic == "against references" and s.inputs[0] == "one"]
    assert near[0].inputs[1] == "performance/peers-read/5/compile"
    assert near[0].value == pytest.approx(100 / 96.1)
    assert any("stated by one side" in note for note in near[0].notes)


def test_the_command_shows_conclusions(calotype: Calotype, record_file: Path) -> None:
    everything = json.loads(calotype("bench", "conclude", record_file, "--json").out)
    assert len(everything["statements"]) > 80
    [wrong] = [v for v in everything["verdicts"] if v["claim"]["name"] == "l20-best-per-node"]
    assert (wrong["derived"], wrong["follows"]) == (127.0, False)
    text = calotype("bench", "conclude", "--markdown").out
    assert "## conclusions of the sources, recomputed" in text
    assert "= 0.5639" in text


def test_conclusions_are_read_in_a_narrow_terminal(
    calotype: Calotype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = calotype("bench", "conclude").out.splitlines()
    assert max(map(len, lines)) <= 80
    at = next(n for n, line in enumerate(lines) if line.startswith("  P5 over P4de at micro-batch 32"))
    told = [line.strip() for line in lines[at : at + 3]]
    assert told[0].endswith("[aws-mosaicml]")
    assert told[1:] == ["stated 1.89 ×, derived 1.887, follows yes", "385.31 / 204.22 = 1.8867"]


def test_the_command_can_be_narrowed(
    calotype: Calotype, record_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    seen = calotype("bench", "conclude", "--source", "nemo", "--topic", "scaling")
    assert "serial fraction" in seen.out
    assert "comfyui" not in seen.out
    assert "derived again" not in seen.out
    mine = json.loads(calotype("bench", "conclude", record_file, "--source", "records", "--json").out)
    assert {s["source"] for s in mine["statements"]} == {"records"}
    wrong = calotype("bench", "conclude", "--source", "nemmo", "--topic", "colour")
    assert wrong.code == 2
    assert "did you mean 'nemo'" in wrong.err
    assert "--topic" in wrong.err
