"""What the engine does on a GPU and nowhere else, run by hand on one: `python -m tests.gpu.engine`.

Small models, so that all but compiling takes a minute. Every preset has to make the picture of the baseline,
however often its graphs are replayed, whatever changes between. Prints a line for each check and ends with 1
if one failed. Not collected by pytest: the machines that run the tests have no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.engine.compile.manager import CompileManager
from calotype.engine.engine import Engine
from calotype.engine.kernels import attention
from calotype.engine.load import load_model_for_preset
from calotype.engine.passes import Pass
from calotype.engine.passes.aot_compiled import AOT_COMPILED
from calotype.engine.passes.compile_blocks import COMPILE_BLOCKS
from calotype.engine.passes.compile_whole import COMPILE_WHOLE
from calotype.engine.passes.cuda_graph import CUDA_GRAPH
from calotype.engine.presets import CUSTOM_PREFIX, pass_names
from calotype.engine.quantization.calibrate import calibrate
from calotype.engine.torch_info import full_fingerprint
from calotype.models.architecture import Architecture
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights
from tests.engines import begun, latents_of, relative, with_unet
from tests.gpu.training import result
from tests.small_models import shrunk

KNOBS: dict[str, Any] = {
    "width": 64,
    "height": 96,
    "steps": 5,
    "cfg": 3.0,
    "prompt": "a red apple",
    "seed": 3,
}
ROUNDED = {
    "fast": 2e-2,
    "max-throughput": 2e-2,
    "low-memory": 2e-2,
    "int8": 0.2,
    "int8-static": 0.2,
    "fp8": 0.3,
    "cached": 1.0,
    "passes:own_forward+cudnn_attention+cuda_graph": 2e-2,
    "passes:own_forward+flash_attention+cuda_graph": 2e-2,
    "passes:own_forward+channels_last+fused_norms+fused_geglu+shared_guidance+cuda_graph": 2e-2,
    "passes:own_forward+channels_last+fused_norms+fp8_convolutions+cuda_graph": 0.3,
}
"""Relative to the baseline's latents after five steps of random weights in half precision."""
UNUSUAL = (AOT_COMPILED.name, CUDA_GRAPH.name)
"""What `fast` has and a list that compiles has not, or last of all."""
LARGE: dict[str, tuple[dict[str, Any], int]] = {
    "sd15": ({"block_out_channels": [80, 160, 160, 160], "attention_head_dim": 2}, 512),
    "sdxl": ({"block_out_channels": [64, 128, 192], "attention_head_dim": [1, 2, 3]}, 1024),
}
"""Widths that give heads of the real models' channels, and the side at which they attend to 4096 places."""


class Bench:
    """Where the checks run."""

    def __init__(self, device: torch.device, folder: Path) -> None:
        self.device, self.folder = device, folder

    def engine(
        self,
        name: str,
        preset: str,
        dtype: torch.dtype = torch.float16,
        architecture: Architecture | None = None,
    ) -> Engine:
        architecture = architecture or shrunk(name)
        model = load_model_for_preset(
            preset,
            RandomWeights(architecture),
            random_identity(f"random:{name}", architecture, 0),
            dtype=dtype,
            device=self.device,
        )
        if preset == "int8-static":
            calibrate(model, prompts=[KNOBS["prompt"]], steps=KNOBS["steps"], size=64)
        return Engine(model, preset=preset, models_folder=self.folder)


def dtype_for(preset: str) -> torch.dtype:
    """Products in e4m3 give bf16."""
    return torch.bfloat16 if preset == "fp8" else torch.float16


def near(found: Tensor, wanted: Tensor, tolerance: float) -> str:
    apart = relative(found.float().cpu(), wanted.float().cpu())
    assert apart <= tolerance, f"{apart:.2e} from the baseline, at most {tolerance:g}"
    return f"{apart:.1e} from the baseline, at most {tolerance:g}"


def makes_the_baselines_picture(bench: Bench, name: str, preset: str) -> str:
    """Three times: run, recorded, replayed; then another size, and the first again."""
    dtype = dtype_for(preset)
    plain, engine = bench.engine(name, "baseline", dtype), bench.engine(name, preset, dtype)
    said = ""
    for size in ({}, {}, {}, {"width": 96, "height": 64}, {}):
        knobs = {**KNOBS, **size}
        said = near(latents_of(engine, **knobs), latents_of(plain, **knobs), ROUNDED[preset])
    return said


def makes_the_baselines_large_picture(bench: Bench, name: str, preset: str) -> str:
    """Of as many places, with heads as wide and as many tiles of products as some kernels ask for."""
    dtype = dtype_for(preset)
    changes, side = LARGE[name]
    architecture = with_unet(shrunk(name), **changes)
    plain, engine = (bench.engine(name, each, dtype, architecture) for each in ("baseline", preset))
    # On a CPU this is a rehearsal.
    on_gpu = bench.device.type == "cuda"
    knobs = {**KNOBS, "width": side, "height": side, "steps": 3} if on_gpu else KNOBS
    with (
        mock.patch.object(attention, "_FEWEST_ROUNDS", 0),
        mock.patch.object(attention, "attention", wraps=attention.attention) as ours,
    ):
        found = [latents_of(engine, **knobs) for _ in range(3)]
    said = max(near(each, latents_of(plain, **knobs), ROUNDED[preset]) for each in found)
    assert ours.called == on_gpu, "our own attention was not asked"
    return said


def compiled_makes_the_same_picture(bench: Bench, name: str, compiling: Pass) -> str:
    """In full precision before the compiler is done, and after; then other prompts, guidance and seeds.

    Waits for the compiler, which takes some minutes; nobody else does.
    """
    usual = [each for each in pass_names("fast", bench.device.type) if each not in UNUSUAL]
    graph = [CUDA_GRAPH.name] if bench.device.type == "cuda" else []
    preset = CUSTOM_PREFIX + "+".join([*usual, compiling.name, *graph])
    with no_tf32():
        plain, engine = (bench.engine(name, each, torch.float32) for each in ("baseline", preset))
        works = engine._networks.runs
        assert isinstance(works, CompileManager)
        before = relative(latents_of(engine, **KNOBS).cpu(), latents_of(plain, **KNOBS).cpu())
        works.finish()
        assert works.changes, "nothing was compiled; the log says why"
        ordered, apart = works.changes, 0.0
        others: list[dict[str, Any]] = [{"prompt": "a long description " * 60}, {"cfg": 5.0}, {"seed": 8}]
        for changes in ({}, {}, {}, *others):
            knobs = {**KNOBS, **changes}
            apart = max(apart, relative(latents_of(engine, **knobs).cpu(), latents_of(plain, **knobs).cpu()))
        works.finish()
        assert works.changes == ordered, "another prompt, guidance or seed was compiled for"
    said = f"{before:.1e} from the fp32 baseline uncompiled, {apart:.1e} with {ordered} regions compiled"
    assert max(before, apart) <= 1e-3, said
    return said


@contextmanager
def no_tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def keeps_company_apart(bench: Bench, preset: str) -> str:
    engine = bench.engine("sdxl", preset)
    several = [
        {**KNOBS, "prompt": "a very long description " * (40 * i + 1), "seed": i, "cfg": 1.0 + i}
        for i in (1, 2, 3)
    ]
    alone = [latents_of(engine, **knobs) for knobs in several]
    runs = [begun(engine, knobs)[0] for knobs in several]
    while under_way := [run for run in runs if not run.done]:
        engine.step(under_way)
    found = [run.latents for run in runs if run.latents is not None]
    return max(near(f, a, 2e-2) for f, a in zip(found, alone, strict=True))


def follows_a_lora(bench: Bench, preset: str) -> str:
    plain, engine = bench.engine("sd15", "baseline"), bench.engine("sd15", preset)
    tensors = {}
    for layer in (
        "mid_block.attentions.0.transformer_blocks.0.attn1.to_q",
        "mid_block.attentions.0.transformer_blocks.0.attn2.to_k",
        "mid_block.resnets.0.time_emb_proj",
        "mid_block.resnets.0.conv1",
        # Near the end: in the middle of random weights a change is lost on the way out.
        "up_blocks.3.resnets.2.conv1",
    ):
        out, inputs, *kernel = plain.model.unet.get_submodule(layer).weight.shape
        generator = torch.Generator().manual_seed(1)
        tensors[f"unet.{layer}.lora_A.weight"] = torch.randn(2, inputs, *kernel, generator=generator)
        tensors[f"unet.{layer}.lora_B.weight"] = torch.randn(
            out, 2, *(1 for _ in kernel), generator=generator
        )
    (bench.folder / "loras").mkdir(exist_ok=True)
    save_file(tensors, bench.folder / "loras" / "one.safetensors")
    said, changed = "", {**KNOBS, "loras": [{"name": "one"}]}
    assert relative(latents_of(plain, **KNOBS), latents_of(plain, **changed)) > 0.02
    for knobs in (KNOBS, changed, KNOBS, changed, KNOBS):
        said = near(latents_of(engine, **knobs), latents_of(plain, **knobs), ROUNDED[preset])
    return said


def never_waits(bench: Bench, preset: str) -> str:
    """After a shape is recorded, no step makes the host wait for the device."""
    engine = bench.engine("sdxl", preset)
    for _ in range(2):
        latents_of(engine, **KNOBS)
    run, _ = begun(engine, KNOBS)
    torch.cuda.set_sync_debug_mode("error")
    try:
        while not run.done:
            engine.step([run])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no wait in five steps"


def leaves_text_encoders_aside(bench: Bench) -> str:
    engine = bench.engine("sdxl", "low-memory")
    latents_of(engine, **KNOBS)
    places = {str(p.device) for encoder in engine.model.text_encoders for p in encoder.parameters()}
    assert places == {"cpu"}, places
    return "in main memory"


def keeps_graphs_beside_another_engine(bench: Bench, preset: str) -> str:
    """What one engine of a model recorded stays right when another prepares the same weights."""
    first = bench.engine("sd15", preset, dtype_for(preset))
    wanted = [latents_of(first, **KNOBS) for _ in range(3)][-1]
    second = Engine(first.model, preset=preset, models_folder=bench.folder)
    spoilt = spoil_free_memory(bench.device)
    found = [latents_of(engine, **KNOBS) for engine in (first, second, first, second, second, first)]
    del spoilt
    return max(near(each, wanted, 1e-3) for each in found)


def spoil_free_memory(device: torch.device) -> list[Tensor]:
    """Fill all that torch has and nobody uses: who reads what was given back reads no numbers."""
    spoilt = []
    for size in (2**power for power in range(24, 8, -1)):
        before = torch.cuda.memory_reserved(device)
        while device.type == "cuda" and torch.cuda.memory_reserved(device) == before:
            spoilt.append(torch.full((size // 4,), float("nan"), device=device))
    return spoilt


def shows_previews(bench: Bench, preset: str) -> str:
    engine = bench.engine("sdxl", preset, dtype_for(preset))
    run, _ = begun(engine, KNOBS)
    engine.step([run])
    (seen,) = engine.preview(run)
    assert len(seen.getcolors(seen.width * seen.height) or ()) > 1, "one colour"
    return f"{seen.width}×{seen.height}"


def pictures_are_the_baselines(bench: Bench) -> str:
    """Through our own decoder too, in fp16 where the baseline's is in fp32."""
    plain, engine = bench.engine("sdxl", "baseline"), bench.engine("sdxl", "fast")
    knobs = {name: value for name, value in KNOBS.items() if name != "prompt"}
    one, other = (each.generate(KNOBS["prompt"], **knobs).images[0] for each in (plain, engine))
    apart = max(abs(a - b) for a, b in zip(one.tobytes(), other.tobytes(), strict=True))
    assert apart <= 8, f"a pixel differs by {apart}/255"
    return f"no pixel differs by more than {apart}/255"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", help="parts of names; all if not said")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["CALOTYPE_CACHE"] = place  # calibrations are not for anybody else
        bench = Bench(torch.device(chosen.device), Path(place))
        checks: dict[str, Callable[[], str]] = {}
        for name in ("sd15", "sd2-base", "sdxl"):
            for preset in ROUNDED:
                check = partial(makes_the_baselines_picture, bench, name, preset)
                checks[f"{preset} makes the baseline's picture, {name}"] = check
        for name in LARGE:
            for preset in ("fast", "int8", "fp8", "cached"):
                check = partial(makes_the_baselines_large_picture, bench, name, preset)
                checks[f"{preset} makes the baseline's large picture, {name}"] = check
        for preset in ("baseline", "fast", "fp8"):
            checks[f"{preset} shows previews"] = partial(shows_previews, bench, preset)
            check = partial(keeps_graphs_beside_another_engine, bench, preset)
            checks[f"{preset} keeps its graphs beside another engine"] = check
        for preset in ("fast", "int8", "int8-static"):
            checks[f"{preset} follows a LoRA"] = partial(follows_a_lora, bench, preset)
            checks[f"{preset} keeps company apart"] = partial(keeps_company_apart, bench, preset)
            checks[f"{preset} never waits"] = partial(never_waits, bench, preset)
        for name, compiling in (("sd15", COMPILE_BLOCKS), ("sdxl", COMPILE_BLOCKS), ("sd15", COMPILE_WHOLE)):
            check = partial(compiled_makes_the_same_picture, bench, name, compiling)
            checks[f"{compiling.name} makes the same picture, {name}"] = check
        checks["text encoders are left aside"] = partial(leaves_text_encoders_aside, bench)
        checks["pictures are the baseline's"] = partial(pictures_are_the_baselines, bench)
        parts = chosen.only or [""]
        asked = [name for name in checks if any(part in name for part in parts)]
        environment, results = full_fingerprint().as_dict(), {}
        for name in asked:
            results[name] = result(name, checks[name])
            if chosen.out:
                # After each: whoever is told to stop has what was found.
                found = {"environment": environment, "checks": results}
                chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(any(not r["passed"] for r in results.values()))


if __name__ == "__main__":
    main()
