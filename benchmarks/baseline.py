"""Measures the baseline engine on a GPU, with random weights of the exact architectures.

Speed beside diffusers in one run, memory beside our estimate, how far one seed's picture moves between batch
sizes and precisions, and whether any sampler makes the host wait for the GPU inside a step.

    PYTHONPATH=src:build/offline python3 benchmarks/baseline.py --out benchmarks/DATE-baseline

Writes results.json: every raw value and the environment. A row that fails says so. On a host without network
see scripts/offline-bundle first.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
from PIL import Image

from calotype.engine.device import DTYPES
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.engine.memory_planner import decode_bytes, unet_bytes
from calotype.engine.torch_info import full_fingerprint
from calotype.models import catalogue
from calotype.models.model import Model, load_model, vae_dtype
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights
from calotype.spec.constants import SAMPLERS
from calotype.spec.generate_request import GenerateRequest

PROMPT = "a photo of an astronaut riding a horse on mars"
DEVICE = torch.device("cuda")


@dataclass(frozen=True)
class Work:
    """One row: a model, a size, a batch, and how long to run it."""

    model: str
    side: int
    batch: int
    steps: int
    trials: int = 5


SPEED = (
    Work("sd15", 512, 1, 50),
    Work("sd15", 512, 16, 50, 2),
    Work("sd2-base", 512, 1, 50, 3),
    Work("sdxl", 1024, 1, 30, 3),
    Work("sdxl", 1024, 8, 20, 1),
)
MEMORY = (
    *(
        Work("sd15", side, batch, 2)
        for side, batch in ((512, 1), (512, 4), (512, 16), (768, 4), (1024, 1), (1024, 4), (2048, 1))
    ),
    *(
        Work("sdxl", side, batch, 2)
        for side, batch in (
            (512, 1),
            (512, 8),
            (512, 32),
            (768, 4),
            (1024, 1),
            (1024, 4),
            (1024, 16),
            (1536, 1),
            (2048, 1),
        )
    ),
)


SAMENESS = {"sd15": (512, ("fp32", "fp16", "bf16")), "sdxl": (1024, ("fp16", "bf16"))}


def gpu_model(name: str) -> Model:
    """Seeded random weights of the exact architecture, in fp32."""
    architecture = catalogue.architecture(name)
    identity = random_identity(f"random:{name}", architecture, 0)
    return load_model(RandomWeights(architecture, 0), identity, dtype=torch.float32, device=DEVICE)


def cast(model: Model, precision: str) -> Model:
    """The same model in another precision, beside the first."""
    dtype = DTYPES[precision]
    parts = {name: copy.deepcopy(module).to(dtype) for name, module in model.parts().items()}
    unet, vae = parts.pop("unet"), parts.pop("vae").to(vae_dtype(model.architecture, dtype))
    return replace(model, unet=unet, vae=vae, text_encoders=list(parts.values()), dtype=dtype)


def timed(work: Callable[[], object], trials: int) -> list[float]:
    work()
    seconds = []
    for _ in range(trials):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def request_for(work: Work) -> GenerateRequest:
    return GenerateRequest(
        prompt=PROMPT,
        width=work.side,
        height=work.side,
        steps=work.steps,
        count=work.batch,
        seed=1,
        sampler="euler",
        schedule="normal",
        tile_vae=False,
    )


def diffusers_pipeline(model: Model) -> Any:
    """What a user would write instead, on the same modules."""
    scheduler = EulerDiscreteScheduler.from_config(
        {**model.architecture.scheduler, "timestep_spacing": "linspace"}
    )
    # In half precision, as a user would: the pipeline itself widens autoencoders that overflow.
    vae = copy.deepcopy(model.vae).to(model.dtype)
    parts: dict[str, Any] = {"vae": vae, "unet": model.unet, "scheduler": scheduler}
    parts |= {"text_encoder": model.text_encoders[0], "tokenizer": model.tokenizers[0]}
    if model.architecture.family == "sdxl":
        parts |= {"text_encoder_2": model.text_encoders[1], "tokenizer_2": model.tokenizers[1]}
        pipe = StableDiffusionXLPipeline(**parts, add_watermarker=False)
    else:
        pipe = StableDiffusionPipeline(
            **parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False
        )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def speed_row(model: Model, work: Work) -> dict[str, Any]:
    engine = Engine(model)
    request = request_for(work)
    ours = timed(lambda: engine.generate(request, batch_size=work.batch), work.trials)
    pipe = diffusers_pipeline(model)
    theirs = timed(
        lambda: pipe(
            [PROMPT] * work.batch, num_inference_steps=work.steps, width=work.side, height=work.side
        ),
        work.trials,
    )
    ours_s, theirs_s = statistics.median(ours), statistics.median(theirs)
    return {
        "work": vars(work),
        "calotype_s": ours,
        "diffusers_s": theirs,
        "calotype_images_per_s": work.batch / ours_s,
        "diffusers_images_per_s": work.batch / theirs_s,
        "ratio": theirs_s / ours_s,
    }


def memory_row(model: Model, work: Work) -> dict[str, Any]:
    """Peak of the steps and of the decode apart, each beside its estimate."""
    engine = Engine(model)
    request = engine.resolve_defaults(request_for(work))
    torch.cuda.empty_cache()
    resting = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run = engine.begin(request, Inputs(), request.seeds())
    while not run.done:
        engine.step([run])
    unet_peak = torch.cuda.max_memory_allocated() - resting
    torch.cuda.reset_peak_memory_stats()
    engine.finish(run, request, Inputs())
    decode_peak = torch.cuda.max_memory_allocated() - resting
    a, latent = model.architecture, work.side // model.architecture.vae_factor
    vae_bytes = next(model.vae.parameters()).element_size()
    return {
        "work": vars(work),
        "weights_bytes": resting,
        "unet_peak_bytes": unet_peak,
        "decode_peak_bytes": decode_peak,
        "unet_estimate_bytes": unet_bytes(a, 2 * work.batch, latent, latent, model.dtype.itemsize),
        "decode_estimate_bytes": decode_bytes(a, work.side, work.side, vae_bytes),
    }


def pixels(image: Image.Image) -> np.ndarray[Any, Any]:
    return np.asarray(image).astype(np.int32)


def psnr(a: Image.Image, b: Image.Image) -> float:
    error = float(((pixels(a) - pixels(b)) ** 2).mean())
    return float("inf") if error == 0 else 10 * float(np.log10(255**2 / error))


def sameness_rows(
    model: Model, side: int, precision: str, exact: dict[str, Image.Image]
) -> list[dict[str, Any]]:
    """One seed's picture alone, in a batch of four, last in a batch of eight; and beside fp32."""
    engine, name, rows = Engine(cast(model, precision)), model.architecture.name, []
    for sampler in ("euler", "euler_ancestral", "dpmpp_2m", "dpmpp_sde"):

        def batch(first: int, count: int, sampler: str = sampler) -> list[Image.Image]:
            made = engine.generate(
                PROMPT,
                width=side,
                height=side,
                steps=20,
                sampler=sampler,
                seed=first,
                count=count,
                batch_size=count,
            )
            return made.images

        alone, four, eight = batch(107, 1)[0], batch(106, 4)[1], batch(100, 8)[7]
        worst = max(int(np.abs(pixels(alone) - pixels(other)).max()) for other in (four, eight))
        if precision == "fp32":
            exact[sampler] = alone
        rows.append(
            {
                "model": name,
                "side": side,
                "precision": precision,
                "sampler": sampler,
                "largest_difference_of_255": worst,
                "psnr_db": min(psnr(alone, four), psnr(alone, eight)),
                "psnr_to_fp32_db": psnr(alone, exact[sampler]) if sampler in exact else None,
            }
        )
    return rows


def waiting_row(model: Model, sampler: str) -> dict[str, Any]:
    """Run a few steps with torch set to raise wherever the host waits for the GPU."""
    engine = Engine(model)
    request = engine.resolve_defaults(request_for(Work("", 512, 2, 4)).with_changes(sampler=sampler))
    run = engine.begin(request, Inputs(), request.seeds())
    torch.cuda.set_sync_debug_mode("error")
    try:
        while not run.done:
            engine.step([run])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"sampler": sampler, "waits": False}


def guarded(what: str, work: Callable[[], Any]) -> Any:
    """A row that fails is a row that says so."""
    try:
        result = work()
    except Exception as error:
        result = {"failed": what, "error": f"{type(error).__name__}: {error}"[:500]}
    print(json.dumps(result, default=str), flush=True)
    gc.collect()
    torch.cuda.empty_cache()
    return result


def model_rows(name: str, kinds: Sequence[str]) -> dict[str, list[Any]]:
    """Every row of one model, which is loaded once."""
    base = gpu_model(name)
    half = cast(base, "fp16")
    rows: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for kind, works, measure in (("speed", SPEED, speed_row), ("memory", MEMORY, memory_row)):
        for work in works if kind in kinds else ():
            if work.model == name:
                rows[kind].append(guarded(f"{kind} {work}", partial(measure, half, work)))
    if "waiting" in kinds and name == "sd15":
        for sampler in SAMPLERS:
            rows["waiting"].append(guarded(f"waiting {sampler}", partial(waiting_row, half, sampler)))
    del half
    if "sameness" in kinds and name in SAMENESS:
        exact: dict[str, Image.Image] = {}
        side, precisions = SAMENESS[name]
        for precision in precisions:
            measured = partial(sameness_rows, base, side, precision, exact)
            rows["sameness"].append(guarded(f"sameness {name} {precision}", measured))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=("speed", "memory", "waiting", "sameness"))
    parser.add_argument("--models", nargs="*", default=("sd15", "sd2-base", "sdxl"))
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "environment": full_fingerprint().as_dict(),
        "command": f"python3 {' '.join(sys.argv)}",
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.models:
        results[name] = model_rows(name, arguments.only)
        (arguments.out / "results.json").write_text(json.dumps(results, indent=1, default=str) + "\n")
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
