"""Counts the FLOPs of a batch of images with torch on meta tensors.

Matrix products, convolutions and attention of the UNet's evaluations and of the decode, as the model has
them: what a pass leaves out still counts. Text encoders are left out; they are thousandths of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from calotype.models.architecture import Architecture
from calotype.sampling.api import count_evaluations
from calotype.spec.generate_request import GenerateRequest


def tflop_per_picture(
    architecture: Architecture, request: GenerateRequest, sigmas: tuple[float, ...]
) -> float:
    """Return the TFLOP per image from noise to pixels, for a request with a size."""
    assert request.width
    assert request.height
    factor = architecture.vae_factor
    latent = (request.height // factor, request.width // factor)
    rows = 1 if request.cfg == 1 else 2
    options = {} if request.eta is None else {"eta": request.eta}
    evaluations = count_evaluations(request.sampler, sigmas, **options)
    return evaluations * rows * unet_tflop(architecture, *latent) + decode_tflop(architecture, *latent)


def unet_tflop(architecture: Architecture, latent_height: int, latent_width: int) -> float:
    """Return the TFLOP of one evaluation of one row."""
    unet: Any = architecture.build("unet")
    config = architecture.unet
    added = {}
    if architecture.family == "sdxl":
        pooled = architecture.text_encoders[-1]["projection_dim"]
        added = {"text_embeds": torch.empty(1, pooled, device="meta")}
        added["time_ids"] = torch.empty(1, 6, device="meta")
    tokens = architecture.text_encoders[0].get("max_position_embeddings", 77)

    def evaluate() -> None:
        unet(
            torch.empty(1, config["in_channels"], latent_height, latent_width, device="meta"),
            torch.zeros(1, device="meta"),
            torch.empty(1, tokens, config["cross_attention_dim"], device="meta"),
            added_cond_kwargs=added or None,
        )

    return _counted(evaluate)


def decode_tflop(architecture: Architecture, latent_height: int, latent_width: int) -> float:
    """Return the TFLOP of decoding one image."""
    vae: Any = architecture.build("vae")
    shape = (1, architecture.latent_channels, latent_height, latent_width)
    return _counted(lambda: vae.decode(torch.empty(shape, device="meta")))


def _counted(run: Callable[[], object]) -> float:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 1e12
