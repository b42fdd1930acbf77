"""A UNet's blocks compiled by torch beside the same blocks run by our kernels, on a GPU.

    PYTHONPATH=src:build/offline python3 benchmarks/compiled_blocks.py --out OUT

Every form of block that an evaluation has, with random weights in half precision: milliseconds of a graph of
it, compiled as by the pass `compile_blocks` and as `fast` runs it. Says what it is about to run, so that a
crash has a name, and writes results.json after each. `--device cpu` tries it on shrunk models, and measures
nothing.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from baseline import PROMPT, cast, gpu_model
from inference import small_model
from torch import Tensor

from calotype.engine.compile.aot_package import read_package
from calotype.engine.compile.region import CompileRequest, Region, RegionSignature
from calotype.engine.compile.subprocess_compiler import SubprocessCompiler
from calotype.engine.cuda_graphs import CudaGraphed
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.engine.presets import CUSTOM_PREFIX, build_preset, pass_names
from calotype.engine.torch_info import full_fingerprint
from calotype.models.model import Model
from calotype.spec.generate_request import GenerateRequest

WORK = ("sd15 512 b16", "sdxl 1024 b8")
TIMES, REPEATED = 5, 10
COMPILERS = 8


class Watched:
    """Runs regions as they are, and remembers each form of them with the inputs it met first."""

    def __init__(self) -> None:
        self.changes = 0
        self.met: dict[str, tuple[Region, tuple[Any, ...]]] = {}
        self.times: Counter[str] = Counter()

    def run(self, region: Region) -> Callable[..., Any]:
        def walk(*inputs: Any) -> Any:
            signature = region.signature(region.kind(inputs))
            self.times[signature] += 1
            if signature not in self.met:
                kept = tuple(None if each is None else each.clone() for each in inputs)
                self.met[signature] = region, region.weight_layout(kept)
            return region.walk(*inputs)

        return walk


def blocks(model: Model, side: int, batch: int, most: int) -> Iterator[dict[str, Any]]:
    """The figures of each form of block, those an evaluation spends most on first; so many are compiled."""
    kind = model.device.type
    passes = [name for name in pass_names("fast", kind) if not name.endswith(("graph", "ahead"))]
    preset, watched = f"{CUSTOM_PREFIX}{'+'.join([*passes, 'compile_blocks'])}", Watched()
    engine = Engine(model, preset=preset, networks=build_preset(model, preset, runs=watched))
    request = engine.resolve_defaults(
        GenerateRequest(prompt=PROMPT, width=side, height=side, steps=2, count=batch)
    )
    engine.step([engine.begin(request, Inputs(), request.seeds())])
    ours = {
        signature: milliseconds(region.walk, inputs, model.device)
        for signature, (region, inputs) in watched.met.items()
    }
    costliest = sorted(ours, key=lambda each: -ours[each] * watched.times[each])
    compilers = COMPILERS if kind == "cuda" else 1
    elsewhere, started = SubprocessCompiler(model, pass_names(preset, kind), compilers), time.monotonic()

    def compiled(signature: str) -> Path:
        region, inputs = watched.met[signature]
        forms = tuple(each if each is None else RegionSignature.of(each) for each in inputs)
        return elsewhere(CompileRequest(signature, region, forms))

    with ThreadPoolExecutor(compilers) as pool:
        files = list(pool.map(compiled, costliest[:most]))
    print(f"{len(files)} of {len(ours)} blocks compiled after {time.monotonic() - started:.0f} s", flush=True)
    for place, signature in enumerate(costliest):
        region, inputs = watched.met[signature]
        row = {
            "block": region.name,
            "inputs": [each if each is None else list(each.shape) for each in inputs],
            "times": watched.times[signature],
            "ours_ms": ours[signature],
        }
        print(f"{region.name}: {row['times']} times {row['ours_ms']:.3f} ms", end=" ", flush=True)
        if place < len(files):
            made = _made(files[place], region)
            row["apart"] = apart(made(*inputs), region.walk(*inputs))
            row["compiled_ms"] = milliseconds(made, inputs, model.device)
            print(f"by our kernels, {row['compiled_ms']:.3f} ms compiled, {row['apart']:.1e} apart", end="")
        print(flush=True)
        yield row
    elsewhere.end()


def _made(path: Path, region: Region) -> Callable[..., Any]:
    made, weights = read_package(path), list(region.weights().values())
    return lambda *inputs: made(list(inputs), weights)


def apart(found: Any, wanted: Any) -> float:
    """How far the answers are from each other, relative to the largest number; a block may give several."""
    pairs = zip(_tensors(found), _tensors(wanted), strict=True)
    return max(float((f - w).abs().max() / w.abs().max()) for f, w in pairs)


def _tensors(answer: Any) -> list[Tensor]:
    several = answer if isinstance(answer, (list, tuple)) else [answer]
    return [each.float() for each in several if each is not None]


def milliseconds(function: Callable[..., Any], inputs: tuple[Any, ...], device: torch.device) -> float:
    with torch.inference_mode():
        if device.type != "cuda":
            started = time.perf_counter()
            function(*inputs)
            return (time.perf_counter() - started) * 1e3
        graph, found = CudaGraphed(function), []
        for _ in range(3):
            graph(*inputs)
        for _ in range(TIMES):
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            for _ in range(REPEATED):
                graph(*inputs)
            ended.record()
            torch.cuda.synchronize()
            found.append(begun.elapsed_time(ended) / REPEATED)
        return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", nargs="+", default=WORK, help="model, side and batch: 'sd15 512 b16'")
    parser.add_argument("--most", type=int, default=100, help="compile only so many, the costliest")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"environment": full_fingerprint().as_dict(), "blocks": {}}
    for work in chosen.work:
        name, side, batch = work.split()
        if chosen.device == "cuda":
            model, size, count = cast(gpu_model(name), "fp16"), int(side), int(batch[1:])
        else:
            model, size, count = small_model(name), 64, 1
        rows = results["blocks"][work] = []
        for row in blocks(model, size, count, chosen.most):
            rows.append(row)
            (chosen.out / "results.json").write_text(json.dumps(results, indent=1, default=str) + "\n")
        both = [row for row in rows if "compiled_ms" in row]
        ours, theirs = (sum(row[key] * row["times"] for row in both) for key in ("ours_ms", "compiled_ms"))
        print(f"{work}: {len(both)} forms take {ours:.2f} ms of an evaluation, {theirs:.2f} ms compiled")


if __name__ == "__main__":
    faulthandler.enable()
    main()
