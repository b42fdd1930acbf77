"""Implements the LATENT nodes.

A LATENT has ComfyUI's layout: a dict with `samples` (batch, channels, height, width) in the VAE's scale,
optionally `noise_mask` (rows, 1, height, width) and `batch_index`, the index of each row in the batch whose
noise it has. `factor` is the number of pixels per latent pixel along one side; 8 by default, as in ComfyUI.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calotype.core.errors import Problem, RequestError
from calotype.models.architecture import Architecture
from calotype.workflow.node_api import Context
from calotype.workflow.nodes.impl.masks import faded
from calotype.workflow.nodes.impl.resize import CENTER, resized

Latent = dict[str, Any]

DEFAULT_FACTOR = 8
DEFAULT_CHANNELS = 4
MIN_SIDE = 64
"""Minimum side in pixels of LatentUpscale, as in ComfyUI."""


def factor_of(latent: Latent) -> int:
    return int(latent.get("factor", DEFAULT_FACTOR))


def for_model(latent: Latent, architecture: Architecture) -> Latent:
    """Check that a latent fits a model; an empty one takes the model's shape, unknown when it was created."""
    samples = latent["samples"]
    channels, factor = architecture.latent_channels, architecture.vae_factor
    if samples.shape[1] == channels and factor_of(latent) == factor:
        return latent
    if bool(samples.any()):
        has = f"{samples.shape[1]} channels and {factor_of(latent)}×{factor_of(latent)} pixels each"
        works = f"{architecture.title} works on {channels} and {factor}×{factor}"
        rule = f"has latents of {has}, {works}; encode with the VAE of the same checkpoint"
        raise RequestError([Problem("latent_image", rule)])
    height, width = (side * factor_of(latent) // factor for side in samples.shape[-2:])
    return {**latent, "samples": torch.zeros(len(samples), channels, height, width), "factor": factor}


def empty(_context: Context, width: int, height: int, batch_size: int = 1) -> tuple[Latent]:
    size = (height // DEFAULT_FACTOR, width // DEFAULT_FACTOR)
    return ({"samples": torch.zeros(batch_size, DEFAULT_CHANNELS, *size), "factor": DEFAULT_FACTOR},)


def set_noise_mask(_context: Context, samples: Latent, mask: Tensor) -> tuple[Latent]:
    return ({**samples, "noise_mask": mask.reshape(-1, 1, *mask.shape[-2:])},)


def upscaled(
    _context: Context, samples: Latent, upscale_method: str, width: int, height: int, crop: str
) -> tuple[Latent]:
    if width == 0 and height == 0:
        return (samples,)
    tensor, factor = samples["samples"], factor_of(samples)
    # A side of 0 keeps the aspect ratio.
    if width == 0:
        width = round(tensor.shape[3] * max(MIN_SIDE, height) / tensor.shape[2])
    elif height == 0:
        height = round(tensor.shape[2] * max(MIN_SIDE, width) / tensor.shape[3])
    width, height = (max(MIN_SIDE, side) // factor for side in (width, height))
    return ({**samples, "samples": resized(tensor, width, height, upscale_method, crop)},)


def upscaled_by(_context: Context, samples: Latent, upscale_method: str, scale_by: float) -> tuple[Latent]:
    tensor = samples["samples"]
    width, height = (max(1, round(side * scale_by)) for side in (tensor.shape[3], tensor.shape[2]))
    return ({**samples, "samples": resized(tensor, width, height, upscale_method)},)


def from_batch(_context: Context, samples: Latent, batch_index: int, length: int) -> tuple[Latent]:
    tensor = samples["samples"]
    start = min(len(tensor) - 1, batch_index)
    selection = slice(start, start + length)
    indices = samples.get("batch_index", range(len(tensor)))
    selected = {**samples, "samples": tensor[selection].clone(), "batch_index": list(indices)[selection]}
    mask = samples.get("noise_mask")
    if mask is not None and len(mask) > 1:
        selected["noise_mask"] = repeated_to(mask, len(tensor))[selection].clone()
    return (selected,)


def repeated(_context: Context, samples: Latent, amount: int) -> tuple[Latent]:
    tensor, result = samples["samples"], dict(samples)
    result["samples"] = tensor.repeat(amount, 1, 1, 1)
    mask, indices = samples.get("noise_mask"), samples.get("batch_index")
    if mask is not None and len(mask) > 1:
        result["noise_mask"] = repeated_to(mask, len(tensor)).repeat(amount, 1, 1, 1)
    if indices is not None:
        # Each repetition has its own noise.
        stride = max(indices) - min(indices) + 1
        result["batch_index"] = [index + turn * stride for turn in range(amount) for index in indices]
    return (result,)


def batched(_context: Context, samples1: Latent, samples2: Latent) -> tuple[Latent]:
    one, other = samples1["samples"], samples2["samples"]
    if one.shape[1:] != other.shape[1:]:
        other = resized(other, one.shape[3], one.shape[2], "bilinear", CENTER)
    indices = [
        index
        for latent, tensor in ((samples1, one), (samples2, other))
        for index in latent.get("batch_index", range(len(tensor)))
    ]
    return ({**samples1, "samples": torch.cat([one, other]), "batch_index": indices},)


def flipped(_context: Context, samples: Latent, flip_method: str) -> tuple[Latent]:
    along = 2 if flip_method.startswith("x") else 3
    return ({**samples, "samples": samples["samples"].flip(along)},)


def rotated(_context: Context, samples: Latent, rotation: str) -> tuple[Latent]:
    turns = 0 if rotation == "none" else int(rotation.split(maxsplit=1)[0]) // 90
    return ({**samples, "samples": torch.rot90(samples["samples"], turns, (3, 2))},)


def composited(
    _context: Context, samples_to: Latent, samples_from: Latent, x: int, y: int, feather: int
) -> tuple[Latent]:
    """Paste one latent onto another; with feather its inner edges fade."""
    factor = factor_of(samples_to)
    x, y, feather = (pixels // factor for pixels in (x, y, feather))
    below = samples_to["samples"].clone()
    above = samples_from["samples"][:, :, : below.shape[2] - y, : below.shape[3] - x]
    height, width = above.shape[2:]
    rows = faded(height, y, below.shape[2], feather)
    columns = faded(width, x, below.shape[3], feather)
    region = below[:, :, y : y + height, x : x + width]
    region.copy_(torch.lerp(region, above, torch.outer(rows, columns)))
    return ({**samples_to, "samples": below},)


def repeated_to(rows: Tensor, count: int) -> Tensor:
    """Repeat the rows up to `count` rows."""
    return rows[torch.arange(count) % len(rows)]
