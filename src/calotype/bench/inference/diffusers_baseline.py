"""The plain diffusers pipeline on the same modules, noise and shapes, as a user would write it.

Knows nothing of clocks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image

from calotype.models.model import Model
from calotype.sampling import NoiseStream
from calotype.spec.bench_job import System
from calotype.spec.generate_request import GenerateRequest


def baseline_pipeline(
    model: Model, system: System, request: GenerateRequest
) -> Callable[[], list[Image.Image]]:
    """Return a function that generates the request's images with diffusers; `request` has a size."""
    pipeline = pipeline_of(model)
    if system == "diffusers-compile":
        _compile(pipeline)
    pipeline.scheduler.set_timesteps(request.steps)
    factor = model.architecture.vae_factor
    assert request.width
    assert request.height
    shape = (model.architecture.latent_channels, request.height // factor, request.width // factor)
    scale = _starting_scale(pipeline.scheduler)

    def make() -> list[Image.Image]:
        noise = NoiseStream(request.seeds(), shape, model.device).initial()
        output = pipeline(
            [request.prompt] * request.count,
            negative_prompt=None
            if request.negative_prompt is None
            else [request.negative_prompt] * request.count,
            num_inference_steps=request.steps,
            guidance_scale=request.cfg,
            width=request.width,
            height=request.height,
            latents=(noise * scale).to(model.dtype),
        )
        return list(output.images)

    return make


def pipeline_of(model: Model) -> Any:
    """Build a diffusers pipeline of the model's modules."""
    import diffusers  # noqa: PLC0415 - takes seconds, and only peers need its pipelines

    architecture = model.architecture
    scheduler = diffusers.EulerDiscreteScheduler.from_config(
        {**architecture.scheduler, "timestep_spacing": "linspace"}
    )
    # In half precision, as a user would: the pipeline itself widens autoencoders that overflow. Ours waits
    # elsewhere, so that it does not count as the peer's memory.
    parts: dict[str, Any] = {"vae": copy.deepcopy(model.vae).to(model.dtype), "unet": model.unet}
    model.vae.to("cpu")
    parts |= {
        "scheduler": scheduler,
        "text_encoder": model.text_encoders[0],
        "tokenizer": model.tokenizers[0],
    }
    if architecture.family == "sdxl":
        parts |= {"text_encoder_2": model.text_encoders[1], "tokenizer_2": model.tokenizers[1]}
        parts |= {"force_zeros_for_empty_prompt": architecture.force_zeros_for_empty_prompt}
        pipeline = diffusers.StableDiffusionXLPipeline(**parts, add_watermarker=False)
    else:
        pipeline = diffusers.StableDiffusionPipeline(
            **parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False
        )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _compile(pipeline: Any) -> None:
    """The recipe of diffusers' own guide to fast inference."""
    pipeline.unet.to(memory_format=torch.channels_last)
    pipeline.vae.to(memory_format=torch.channels_last)
    pipeline.fuse_qkv_projections()
    pipeline.unet = torch.compile(pipeline.unet, mode="reduce-overhead", fullgraph=True)
    pipeline.vae.decode = torch.compile(pipeline.vae.decode, fullgraph=True)


def _starting_scale(scheduler: Any) -> float:
    """Return the factor on the noise, besides the pipeline's scaling, that makes both start equal."""
    own = float(scheduler.init_noise_sigma)
    return 1.0 if own == 1.0 else math.sqrt(float(scheduler.sigmas[0]) ** 2 + 1.0) / own
