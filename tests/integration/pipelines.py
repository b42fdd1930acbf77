"""The same random weights in our engine and in a diffusers pipeline, and both from the same noise.

Schedules differ in name only: each case here visits the same noise levels on both sides. Knows nothing of
tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import Tensor

from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.models.architecture import Architecture
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights
from calotype.sampling import NoiseStream

STEPS = 10


@dataclass(frozen=True)
class Case:
    """One sampler by our name and by diffusers'."""

    sampler: str
    schedule: str
    scheduler: str
    settings: Mapping[str, Any]
    timesteps: tuple[int, ...] | None = None
    """Given to diffusers where it has no spacing that equals our schedule."""

    def __str__(self) -> str:
        return self.sampler


CASES = (
    Case("euler", "normal", "EulerDiscreteScheduler", {"timestep_spacing": "linspace"}),
    # Ours end at no noise at all, as diffusers' do with this setting.
    Case(
        "ddim",
        "ddim_uniform",
        "DDIMScheduler",
        {"timestep_spacing": "leading", "steps_offset": 1, "set_alpha_to_one": True, "clip_sample": False},
    ),
    Case(
        "dpmpp_2m",
        "simple",
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "dpmsolver++", "solver_order": 2, "final_sigmas_type": "zero"},
        tuple(range(999, 0, -100)),
    ),
)


@dataclass(frozen=True)
class Pair:
    """Our engine and diffusers' pipeline on one folder of weights."""

    ours: Engine
    theirs: Any

    def pipeline(self, kind: str) -> Any:
        """The same weights under another pipeline class."""
        made = getattr(diffusers, kind)(**self.theirs.components)
        made.set_progress_bar_config(disable=True)
        return made

    def scheduler(self, case: Case) -> Any:
        return getattr(diffusers, case.scheduler).from_config(self.theirs.scheduler.config, **case.settings)


def make_pair(architecture: Architecture, folder: Path) -> Pair:
    """Write random weights as a folder and load it on both sides."""
    write_folder(RandomWeights(architecture, seed=1), folder)
    pipeline = getattr(diffusers, architecture.pipeline).from_pretrained(str(folder))
    pipeline.set_progress_bar_config(disable=True)
    return Pair(load(str(folder), device="cpu", precision="fp32", preset="baseline"), pipeline)


def their_latents(pair: Pair, case: Case, *, seed: int = 5, pipeline: Any = None, **arguments: Any) -> Tensor:
    """The final latents of a diffusers pipeline, begun from the noise of our seed."""
    pipeline = pipeline or pair.theirs
    pipeline.scheduler = pair.scheduler(case)
    steps: dict[str, Any] = {"num_inference_steps": STEPS}
    if case.timesteps is not None:
        steps = {"timesteps": list(case.timesteps)}
        pipeline.scheduler.set_timesteps(timesteps=list(case.timesteps))
    else:
        pipeline.scheduler.set_timesteps(STEPS)
    width, height = arguments.setdefault("width", 64), arguments.setdefault("height", 64)
    noise = NoiseStream([seed], (4, height // 8, width // 8)).initial()
    result = pipeline(
        **steps,
        latents=noise * starting_scale(pipeline.scheduler),
        output_type="latent",
        **arguments,
    )
    return result.images


def starting_scale(scheduler: Any) -> float:
    """What to multiply noise by, beside the pipeline's own scaling, so that the UNet sees exactly the noise.

    Euler's scheduler scales by sigma where the variances add up to sigma² + 1.
    """
    own = float(scheduler.init_noise_sigma)
    return 1.0 if own == 1.0 else math.sqrt(float(scheduler.sigmas[0]) ** 2 + 1.0) / own


def their_picture(pair: Pair, latents: Tensor) -> Any:
    """Latents decoded by diffusers."""
    with torch.inference_mode():
        pixels = pair.theirs.vae.decode(latents / pair.theirs.vae.config.scaling_factor, return_dict=False)[0]
    return pair.theirs.image_processor.postprocess(pixels, output_type="pil")[0]
