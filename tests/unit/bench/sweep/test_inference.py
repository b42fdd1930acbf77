"""The process of an inference point, on narrow models: what it finds out, and what it says when it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from calotype.bench.inference.flops import decode_tflop, tflop_per_picture, unet_tflop
from calotype.bench.inference.measure import until_compiled
from calotype.bench.inference.model_cache import LoadedModels
from calotype.bench.sweep.points import parse_sweep, points_of
from calotype.bench.sweep.worker_process import main, verdict
from calotype.core.errors import DoesNotFitError
from calotype.engine.compile.manager import CompileManager
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.engine.presets import build_preset
from calotype.models import catalogue
from calotype.spec.bench_job import InferenceJob, Point, Ticket
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.measurement import Measurement
from tests.unit.engine.compile.test_manager import Compiler, asked, check, layer_of, region

Narrow = Callable[[str], str]


def measured(tmp_path: Path, system: str = "calotype", **settings: object) -> Measurement:
    """What the process of a point writes, run here."""
    asked = {"kind": "inference", "settings": {"batch": 1, "steps": 2, **settings}, "systems": [system]}
    [point] = points_of(parse_sweep({**asked, "units": 2, "warmup": 1}), device="cpu")
    given, out = tmp_path / "ticket.json", tmp_path / "measurement.json"
    ticket = Ticket(point=point, round=1, picture=str(tmp_path / "pictures" / "first.webp"))
    given.write_text(ticket.model_dump_json())
    main(given, out)
    return Measurement.model_validate_json(out.read_bytes())


def test_a_point_is_measured_from_text_to_pixels(tmp_path: Path, narrow: Narrow) -> None:
    made = measured(tmp_path, model=narrow("emoji"), batch=2, size="64x32", preset="fast")
    assert (made.status, made.message) == ("ok", None)
    assert made.request
    assert (made.request["width"], made.request["height"], made.samples_per_unit) == (64, 32, 2)
    assert made.passes
    assert "own_forward" in made.passes
    assert "cuda_graph" not in made.passes
    assert [len(made.series[name].values) for name in ("wall", "evaluation", "text", "decode")] == [
        2,
        2,
        1,
        1,
    ]
    assert made.wall
    assert made.samples_per_s
    assert made.samples_per_s == pytest.approx(2 / made.wall.median)
    assert len(made.preparation.warmup_s) == 1
    assert made.work
    assert made.work.tflops == pytest.approx(made.work.tflop_per_sample * made.samples_per_s)
    assert made.quality
    assert made.quality.psnr_db is None or made.quality.psnr_db > 60
    assert made.quality.ssim > 0.999
    assert made.precision == "fp32"
    assert made.fingerprint["torch"]["version"] == str(torch.__version__)
    assert made.host_peak_bytes
    with Image.open(tmp_path / "pictures" / "first.webp") as kept:
        assert kept.size == (64, 32)
    assert (made.memory, made.energy_j, made.notes) == ([], None, [])


def test_the_peer_makes_the_same_picture(tmp_path: Path, narrow: Narrow) -> None:
    made = measured(tmp_path, "diffusers-eager", model=narrow("sdxl"), batch=2)
    assert (made.status, made.message, made.system) == ("ok", None, "diffusers-eager")
    assert (made.preset, made.passes, made.samples_per_unit) == (None, None, 2)
    assert made.quality
    assert made.quality.psnr_db is None or made.quality.psnr_db > 60


def test_the_peer_has_the_same_weights_and_work(tmp_path: Path, narrow: Narrow) -> None:
    theirs = measured(tmp_path, "diffusers-eager", model=narrow("emoji"))
    ours = measured(tmp_path, model=narrow("emoji"))
    assert ours.weights_sha256 == theirs.weights_sha256
    assert ours.work
    assert theirs.work
    assert ours.work.tflop_per_sample == theirs.work.tflop_per_sample
    assert theirs.quality
    assert theirs.quality.psnr_db is None or theirs.quality.psnr_db > 60
    # Nothing was changed, so nothing is held against anything.
    assert ours.quality is None


def test_points_that_share_a_model_are_measured_as_if_alone(tmp_path: Path, narrow: Narrow) -> None:
    asked = {"kind": "inference", "settings": {"model": narrow("emoji"), "steps": 1, "size": "64x64"}}
    axes, systems = {"preset": ["fast", "baseline"]}, ["calotype", "diffusers-eager"]
    written = parse_sweep({**asked, "axes": axes, "systems": systems, "units": 1, "warmup": 0})
    points = points_of(written, device="cpu")

    def run(place: Path, *those: Point) -> list[Measurement]:
        place.mkdir(exist_ok=True)
        files = []
        for point in those:
            ticket, out = place / f"{point.id}-ticket", place / point.id
            told = Ticket(point=point, round=1, picture=str(out.with_suffix(".webp")))
            ticket.write_text(told.model_dump_json())
            files += [ticket, out]
        main(*files)
        return [Measurement.model_validate_json(file.read_bytes()) for file in files[1::2]]

    together = run(tmp_path / "together", *points)
    assert [(m.preset, m.system) for m in together] == [
        ("fast", "calotype"),
        (None, "diffusers-eager"),
        ("baseline", "calotype"),
    ]
    assert [m.status for m in together] == ["ok"] * 3
    assert [len(m.notes) for m in together] == [0, 1, 1]
    assert "had loaded the weights" in together[1].notes[0]
    for one, point in zip(together[1:], points[1:], strict=True):
        [alone] = run(tmp_path / "alone", point)
        assert (one.id, one.passes, one.quality, one.work is None) == (
            *(alone.id, alone.passes, alone.quality, alone.work is None),
        )
        pictures = [tmp_path / place / f"{point.id}.webp" for place in ("together", "alone")]
        assert pictures[0].read_bytes() == pictures[1].read_bytes()
        assert not alone.notes


def test_the_next_point_finds_the_model_as_it_was_read(narrow: Narrow) -> None:
    keeper = LoadedModels()
    jobs = [
        InferenceJob(model=narrow("emoji"), preset=preset, device="cpu", request=GenerateRequest(prompt="x"))
        for preset in ("fast", "baseline")
    ]
    fast = keeper.engine_for(jobs[0], None).model
    weight = fast.unet.conv_in.weight
    assert not weight.is_contiguous()
    assert keeper.is_clean()
    plain = keeper.engine_for(jobs[1], None).model
    assert plain is fast
    assert all(parameter.is_contiguous() for parameter in plain.unet.parameters())


def test_a_failure_ends_the_process_before_the_next_point(tmp_path: Path, narrow: Narrow) -> None:
    settings = {"model": narrow("emoji"), "steps": 1, "size": "16384x16384"}
    asked = {"kind": "inference", "settings": settings, "axes": {"batch": [4000, 4001]}, "warmup": 0}
    outs = []
    for point in points_of(parse_sweep(asked), device="cpu"):
        ticket, out = tmp_path / f"{point.id}-ticket", tmp_path / point.id
        ticket.write_text(Ticket(point=point, round=1).model_dump_json())
        outs += [ticket, out]
    main(*outs)
    assert Measurement.model_validate_json(outs[1].read_bytes()).status == "oom"
    assert not outs[3].exists()


def test_a_request_that_does_not_fit_is_out_of_memory(tmp_path: Path, narrow: Narrow) -> None:
    made = measured(tmp_path, model=narrow("emoji"), batch=4096, size="16384x16384")
    assert made.status == "oom"
    assert "largest" in str(made.message)
    assert made.series == {}
    assert made.samples_per_unit is None


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    made = measured(tmp_path, model="nothing.safetensors")
    assert made.status == "error"
    assert "nothing.safetensors" in str(made.message)
    assert made.fingerprint["machine"]["python"]


def test_what_counts_as_out_of_memory() -> None:
    assert verdict(DoesNotFitError("too large")) == ("oom", "too large")
    assert verdict(torch.OutOfMemoryError("CUDA"))[0] == "oom"
    assert verdict(RuntimeError("CUDA error: out of memory"))[0] == "oom"
    assert verdict(MemoryError())[0] == "oom"
    failed = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
    assert verdict(failed)[0] == "oom"
    assert verdict(ValueError("two\nlines")) == ("error", "ValueError: two lines")


def test_the_work_is_what_others_have_counted() -> None:
    architecture = catalogue.architecture("sd15")
    unet, decode = unet_tflop(architecture, 64, 64), decode_tflop(architecture, 64, 64)
    assert unet == pytest.approx(0.803, rel=1e-3)
    assert decode == pytest.approx(2.51, rel=2e-3)
    asked = GenerateRequest(prompt="", width=512, height=512, sampler="heun", cfg=1)
    # Heun asks twice a step, but for the last; without guidance there is one row.
    sigmas = (14.0, 5.0, 1.0, 0.0)
    assert tflop_per_picture(architecture, asked, sigmas) == pytest.approx(5 * unet + decode)
    guided = asked.with_changes(cfg=7.5, sampler="euler")
    assert tflop_per_picture(architecture, guided, sigmas) == pytest.approx(2 * 3 * unet + decode)


class Compiles:
    """An engine that has so many regions compiled after each unit; None never compiles."""

    def __init__(self, counts: list[int] | None) -> None:
        self._counts = counts
        self.clock = 0.0

    def unit(self) -> None:
        self.clock += 1.0

    def finish_compiling(self) -> int | None:
        if self._counts is None:
            return None
        self.clock += 10.0
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]


@pytest.mark.parametrize(
    ("counts", "seconds"),
    [
        (None, 0.0),
        # Nothing is left to compile: one unit tells.
        ([0], 21.0),
        # The first unit orders one region, the second another.
        ([0, 1, 2, 2], 43.0),
    ],
)
def test_nothing_is_measured_before_all_is_compiled(counts: list[int] | None, seconds: float) -> None:
    engine = Compiles(counts)
    assert until_compiled(engine, engine.unit, lambda: engine.clock) == seconds


def test_an_engine_waits_for_what_is_compiled_behind_its_back(narrow: Narrow) -> None:
    engine = load(narrow("emoji"), device="cpu", preset="baseline")
    assert engine.finish_compiling() is None
    compiler = Compiler()
    workshop = CompileManager({}, compiler.load, compiler.compile)
    told = replace(build_preset(engine.model, "baseline"), runs=workshop)
    compiling = Engine(engine.model, networks=told)
    assert compiling.finish_compiling() == 0
    layer = layer_of()
    check(workshop.run(region(layer)), layer, asked())
    compiler.go_on.set()
    assert compiling.finish_compiling() == 1
