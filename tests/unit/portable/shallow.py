"""Shrunk models with fewer blocks: tracing takes time per layer, however small. Knows nothing of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calotype.models.architecture import Architecture
from tests.shrunk import shrunk


def shallow(name: str, levels: int = 1) -> Architecture:
    """The shrunk model with the outermost levels, and one layer in each; of the UNet those with attention."""
    full = shrunk(name)
    first = next(i for i, kind in enumerate(full.unet["down_block_types"]) if "CrossAttn" in kind)
    kept = slice(first, first + levels)
    up = list(reversed(full.unet["up_block_types"]))[kept]
    unet = {**_cut(full.unet, kept), "up_block_types": up[::-1], "layers_per_block": 1}
    vae_up = full.vae["up_block_types"][:levels]
    vae = {**_cut(full.vae, slice(0, levels)), "up_block_types": vae_up, "layers_per_block": 1}
    encoders = tuple({**encoder, "num_hidden_layers": 2} for encoder in full.text_encoders)
    return replace(full, unet=unet, vae=vae, text_encoders=encoders)


def _cut(config: Mapping[str, Any], kept: slice) -> dict[str, Any]:
    """Every setting that says something per level, for the levels that are kept."""
    levels = len(config["block_out_channels"])
    per_level = {key for key, value in config.items() if isinstance(value, list) and len(value) == levels}
    return {key: value[kept] if key in per_level else value for key, value in config.items()}
