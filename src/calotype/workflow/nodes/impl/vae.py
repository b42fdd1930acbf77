"""Implements the VAE nodes: conversion between IMAGE and LATENT, in the VAE's own scale."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate

from calotype.engine.device import is_out_of_memory
from calotype.engine.vae import RawVae
from calotype.workflow.node_api import Context, Step
from calotype.workflow.nodes.impl.latents import Latent
from calotype.workflow.nodes.value_types import VaeValue

_log = logging.getLogger(__name__)

Decoded = Generator[Step, None, tuple[Tensor]]
Encoded = Generator[Step, None, tuple[Latent]]
Placed = tuple[RawVae, torch.device]
"""A VAE and its device."""
Work = Callable[[Tensor, bool], Tensor]
"""Encodes or decodes one row, tiled or not."""

GREY = 0.5


def decode(context: Context, samples: Latent, vae: VaeValue) -> Decoded:
    return _decoded(context.models.autoencoder(vae), samples, tiled=False)


def decode_tiled(
    context: Context, samples: Latent, vae: VaeValue, tile_size: int, overlap: int = 64
) -> Decoded:
    return _decoded(_in_tiles(context, vae, tile_size, overlap), samples, tiled=True)


def encode(context: Context, pixels: Tensor, vae: VaeValue) -> Encoded:
    return _encoded(context.models.autoencoder(vae), pixels, tiled=False)


def encode_tiled(
    context: Context, pixels: Tensor, vae: VaeValue, tile_size: int, overlap: int = 64
) -> Encoded:
    return _encoded(_in_tiles(context, vae, tile_size, overlap), pixels, tiled=True)


def _in_tiles(context: Context, vae: VaeValue, side: int, overlap: int) -> Placed:
    raw_vae, device = context.models.autoencoder(vae)
    return raw_vae.in_tiles(side, min(overlap, side // 4)), device


def _decoded(placed: Placed, samples: Latent, *, tiled: bool) -> Decoded:
    raw_vae, device = placed

    def work(row: Tensor, in_tiles: bool) -> Tensor:
        return raw_vae.decode(row.to(device), tiled=in_tiles)

    pixels = yield from _one_by_one(samples["samples"], work, tiled)
    return ((pixels.movedim(1, -1) / 2 + 0.5).clamp(0, 1),)


def _encoded(placed: Placed, pixels: Tensor, *, tiled: bool) -> Encoded:
    raw_vae, device = placed

    def work(row: Tensor, in_tiles: bool) -> Tensor:
        return raw_vae.encode(row.movedim(-1, 1)[:, :3].to(device) * 2 - 1, tiled=in_tiles)

    latents = yield from _one_by_one(_whole_latents(pixels, raw_vae.factor), work, tiled)
    return ({"samples": latents, "factor": raw_vae.factor},)


def encode_for_inpaint(
    context: Context, pixels: Tensor, vae: VaeValue, mask: Tensor, grow_mask_by: int = 6
) -> Encoded:
    """Encode an image with the masked area gray; the noise mask grows by `grow_mask_by` pixels."""
    factor = context.models.autoencoder(vae)[0].factor
    mask = mask.reshape(-1, 1, *mask.shape[-2:]).float()
    mask = interpolate(mask, size=pixels.shape[1:3], mode="bilinear")
    pixels = _whole_latents(pixels, factor)
    mask = _whole_latents(mask.movedim(1, -1), factor).movedim(-1, 1).round()
    pixels = torch.lerp(torch.full_like(pixels, GREY), pixels, 1 - mask.movedim(1, -1))
    (latent,) = yield from encode(context, pixels, vae)
    height, width = mask.shape[-2:]
    return ({**latent, "noise_mask": _grown(mask, grow_mask_by)[..., :height, :width]},)


def _grown(mask: Tensor, by: int) -> Tensor:
    if by == 0:
        return mask
    kernel = torch.ones(1, 1, by, by)
    return conv2d(mask, kernel, padding=math.ceil((by - 1) / 2)).clamp(0, 1).round()


def _whole_latents(pixels: Tensor, factor: int) -> Tensor:
    """Crop the center of an image to a multiple of the latent pixel size."""
    height, width = pixels.shape[1:3]
    y, x = (height % factor) // 2, (width % factor) // 2
    return pixels[:, y : y + height // factor * factor, x : x + width // factor * factor]


def _one_by_one(rows: Tensor, work: Work, tiled: bool) -> Generator[Step, None, Tensor]:
    """One row at a time: a VAE needs many times the memory of its image."""
    done = []
    for index, row in enumerate(rows):
        try:
            done.append(work(row[None], tiled).cpu())
        except RuntimeError as error:
            if tiled or not is_out_of_memory(error):
                raise
            _log.info("tiles: a whole image of this size does not fit")
            torch.cuda.empty_cache()
            tiled = True
            done.append(work(row[None], tiled).cpu())
        yield Step(index + 1, len(rows))
    return torch.cat(done)
