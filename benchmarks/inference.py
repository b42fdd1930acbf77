"""Measures presets on a GPU beside diffusers, eager and compiled, in one run, with random weights.

End to end: text encoder, steps, decode, pixels on the host. Every row has its seconds, its peak memory, the
arithmetic it reached as a share of what the device reaches at best, and one evaluation's kernels by time.

    PYTHONPATH=src:build/offline python3 benchmarks/inference.py --out benchmarks/DATE-inference

Writes results.json after every row; rows that are there already are not run again. A row that fails says so.
What compiles for minutes comes last. On a host without network see scripts/offline-bundle first.
`--device cpu` tries the rows on shrunk models, and measures nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from baseline import PROMPT, cast, diffusers_pipeline, gpu_model, request_for

from calotype.engine.compile.manager import CompileManager
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.engine.quantization.calibrate import calibrate
from calotype.engine.torch_info import full_fingerprint
from calotype.models.model import Model, load_model
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights
from calotype.spec.generate_request import GenerateRequest
from calotype.train.peak_flops import measured_peak

UNET_TFLOP = {"sd15": 0.803, "sdxl": 6.76}
"""One evaluation of one row at the model's own size, attention included."""
DECODE_TFLOP = {"sd15": 2.51, "sdxl": 10.47}
OURS = ("baseline", "fast", "max-throughput", "int8", "fp8", "cached", "low-memory")
THEIRS = ("diffusers-eager", "diffusers-compile")
COMPILING = "diffusers-compile"
EVALUATIONS = (5, 6, 6)
"""Of the run that is looked at step by step: before, between two events, under the profiler. Sixes: turns
of `cached` are of two or three at twenty steps."""


@dataclass(frozen=True)
class Work:
    """One row: what is made, how much of it at once, and by what."""

    model: str
    side: int
    batch: int
    steps: int
    system: str
    trials: int = 5
    precision: str = "fp16"

    @property
    def name(self) -> str:
        precision = "" if self.precision == "fp16" or self.system == "fp8" else f" {self.precision}"
        return f"{self.model} {self.side} b{self.batch} s{self.steps} {self.system}{precision}"

    @property
    def tflop(self) -> float:
        """Of the whole batch, as it would be without any step left out."""
        return self.batch * (2 * self.steps * UNET_TFLOP[self.model] + DECODE_TFLOP[self.model])


def work_of(name: str) -> Work:
    """The row of a name, of ours or of any other preset: 'sd15 512 b16 s50 passes:own_forward bf16'."""
    known = {work.name: work for work in works()}
    if name in known:
        return known[name]
    model, side, batch, steps, system, *precision = name.split()
    return Work(model, int(side), int(batch[1:]), int(steps[1:]), system, 3, *precision)


def precision_of(system: str) -> str:
    """Products in e4m3 give bf16."""
    return "bf16" if system == "fp8" else "fp16"


def works() -> list[Work]:
    one = [
        Work("sd15", 512, 1, 50, system)
        for system in ("fast", "cached", "int8", "diffusers-eager", "diffusers-compile")
    ]
    many = [
        Work("sd15", 512, batch, 50, system, 3, precision_of(system))
        for batch in (16, 32)
        for system in ("fast", "fp8", "cached")
    ]
    large = [
        Work("sdxl", 1024, 1, 30, system, 3, precision_of(system))
        for system in ("fast", "fp8", "cached", "diffusers-eager", "diffusers-compile")
    ]
    batches = [
        Work("sdxl", 1024, 8, 20, system, 2, precision_of(system))
        for system in ("fast", "fp8", "int8", "cached", "diffusers-eager")
    ]
    largest = [
        Work("sdxl", 1024, 8, 20, "fast", 2, "bf16"),
        Work("sdxl", 1024, 16, 20, "fast", 2, "bf16"),
        Work("sdxl", 1024, 16, 20, "fp8", 2, "bf16"),
        Work("sdxl", 1024, 16, 20, "fast", 2),
        Work("sdxl", 1024, 32, 20, "max-throughput", 2, "bf16"),
        Work("sd15", 512, 64, 50, "max-throughput", 2),
    ]
    return sorted([*one, *many, *large, *batches, *largest], key=lambda work: work.system == COMPILING)


def measured(work: Work, make: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """One row's figures."""
    first, _ = _timed(make, device)
    make()  # the second call may still record or choose
    taken = [_timed(make, device) for _ in range(work.trials)]
    seconds = [wall for wall, _ in taken]
    median = statistics.median(seconds)
    memory = _memory(device)
    # After the memory was read: it takes some.
    ceiling = measured_peak(device, torch.float16)
    return {
        "first_call_s": first,
        "seconds": seconds,
        "device_seconds": [between for _, between in taken],
        "median_s": median,
        "range_s": [min(seconds), max(seconds)],
        "images_per_s": work.batch / median,
        **memory,
        "tflops": work.tflop / median,
        "ceiling_tflops": ceiling,
        "share_of_ceiling": work.tflop / median / ceiling if ceiling else None,
    }


def _timed(make: Callable[[], object], device: torch.device) -> tuple[float, float | None]:
    """Seconds on the clock, and between two CUDA events where there is a GPU."""
    if device.type != "cuda":
        started = time.perf_counter()
        make()
        return time.perf_counter() - started, None
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started = time.perf_counter()
    begun.record()
    make()
    ended.record()
    torch.cuda.synchronize()
    return time.perf_counter() - started, begun.elapsed_time(ended) / 1e3


def _memory(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {}
    return {
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def ours(model: Model, work: Work) -> dict[str, Any]:
    if work.system == "int8-static":
        # Random weights have no real ranges: what this finds says how fast it is, and nothing of quality.
        calibrate(model, prompts=[PROMPT], steps=2)
    engine = Engine(model, preset=work.system)
    request = request_for(work)

    def make() -> None:
        engine.clear_prompt_cache()
        engine.generate(request, batch_size=work.batch)

    compiling = _compiled(engine, make)
    figures = measured(work, make, model.device)
    return {**figures, **compiling, **_one_evaluation(engine, request)}


def _compiled(engine: Engine, make: Callable[[], None]) -> dict[str, Any]:
    """Seconds of the first picture, which waits for no compiler, and until nothing is left to compile."""
    runs = engine._networks.runs
    if not isinstance(runs, CompileManager) or not runs.compiles:
        return {}
    started = time.perf_counter()
    make()
    first = time.perf_counter() - started
    runs.finish()
    return {
        "uncompiled_first_s": first,
        "compiled_after_s": time.perf_counter() - started,
        "regions_compiled": runs.changes,
    }


def _one_evaluation(engine: Engine, request: GenerateRequest) -> dict[str, Any]:
    """Milliseconds of an evaluation in the middle of a run, and its kernels by time."""
    resolved, device = engine.resolve_defaults(request), engine.model.device
    run = engine.begin(resolved, Inputs(), resolved.seeds())
    before, timed, profiled = EVALUATIONS

    def advance(times: int) -> None:
        for _ in range(times):
            engine.step([run])

    advance(before)
    wall_s, device_s = _timed(lambda: advance(timed), device)
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[getattr(activity, device.type.upper())]) as profile:
        advance(profiled)
        if device.type == "cuda":
            torch.cuda.synchronize()
    kernels: Counter[str] = Counter()
    for event in profile.key_averages():
        kernels[event.key[:120]] += event.device_time_total / profiled / 1e3
    return {
        "evaluation_ms": (device_s or wall_s) / timed * 1e3,
        "kernels_ms": sum(kernels.values()),
        "kernels": dict(kernels.most_common(40)),
    }


def theirs(model: Model, work: Work) -> dict[str, Any]:
    pipe = diffusers_pipeline(model)
    if work.system == COMPILING:
        # The recipe of diffusers' own guide to fast inference.
        pipe.unet.to(memory_format=torch.channels_last)
        pipe.vae.to(memory_format=torch.channels_last)
        pipe.fuse_qkv_projections()
        pipe.unet = torch.compile(pipe.unet, mode="reduce-overhead", fullgraph=True)
        pipe.vae.decode = torch.compile(pipe.vae.decode, fullgraph=True)

    def make() -> None:
        prompts = [PROMPT] * work.batch
        pipe(prompts, num_inference_steps=work.steps, width=work.side, height=work.side)

    return measured(work, make, model.device)


def row(base: Model, work: Work) -> dict[str, Any]:
    # The model that rows are cast from stays, and is not theirs.
    beside = torch.cuda.memory_allocated() if base.device.type == "cuda" else 0
    try:
        model = cast(base, work.precision)
        if base.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        measure = theirs if work.system in THEIRS else ours
        figures = measure(model, work)
    except Exception as error:
        figures = {"error": f"{type(error).__name__}: {error}"[:500]}
    own = {name: figures[name] - beside for name in ("peak_bytes", "reserved_bytes") if name in figures}
    return {"work": vars(work), **figures, **own, "beside_bytes": beside}


def rehearsed(work: Work) -> Work:
    """The row as a shrunk model does it on a CPU."""
    batch, steps = min(2, work.batch), sum(EVALUATIONS)
    return replace(work, side=64, batch=batch, steps=steps, trials=1, precision="fp32")


def small_model(name: str) -> Model:
    from tests.small_models import shrunk  # noqa: PLC0415 - for rehearsals alone

    architecture = shrunk(name)
    identity = random_identity(f"random:{name}", architecture, 0)
    return load_model(RandomWeights(architecture), identity, dtype=torch.float32, device=torch.device("cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=("sd15", "sdxl"))
    parser.add_argument("--systems", nargs="*", default=(*OURS, *THEIRS))
    parser.add_argument(
        "--only", nargs="*", help="rows by name, such as 'sd15 512 b1 s50 fast', in this order; any preset"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no row after so long")
    chosen = parser.parse_args()
    usual = [work for name in chosen.models for work in works() if work.model == name]
    usual = [work for work in usual if work.system in chosen.systems]
    asked = [work_of(one) for one in chosen.only] if chosen.only else usual
    fill(chosen.out / "results.json", asked, chosen.device, chosen.limit_s)


def fill(place: Path, asked: Sequence[Work], device: str, limit_s: float) -> dict[str, dict[str, Any]]:
    """Measure those rows that a file of results does not have; all that it has then."""
    place.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    results: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {"rows": {}}
    results["environment"] = full_fingerprint().as_dict()
    results.setdefault("commands", []).append(f"python3 {' '.join(sys.argv)}")
    rows: dict[str, dict[str, Any]] = results["rows"]
    base: tuple[str, Model] | None = None
    for work in asked:
        if "median_s" in rows.get(work.name, {}):
            continue
        if time.monotonic() - started > limit_s:
            break
        if base is None or base[0] != work.model:
            base = None  # it goes before the next comes
            base = (work.model, gpu_model(work.model) if device == "cuda" else small_model(work.model))
        rows[work.name] = row(base[1], work if device == "cuda" else rehearsed(work))
        place.write_text(json.dumps(results, indent=1, default=str) + "\n")
        print(work.name, json.dumps(_brief(rows[work.name])), flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    return rows


def _brief(figures: dict[str, Any]) -> dict[str, Any]:
    names = ["median_s", "images_per_s", "first_call_s", "tflops", "evaluation_ms", "kernels_ms", "error"]
    names += ["compiled_after_s", "regions_compiled"]
    return {name: figures[name] for name in names if name in figures}


if __name__ == "__main__":
    main()
