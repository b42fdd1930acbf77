"""Shrunk models with fewer blocks: tracing takes time per layer, however small. Knows nothing of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calotype.models.architecture import Architecture
from tests.small_models import shrunk


def shallow(name: str, levels: int = 1) -> Architecture:
    """The shrunk model with one layer in each block, and the outermost UNet level that has attention.

    A second level is the innermost; only with it there is a block in the middle.
    """
    full = shrunk(name)
    first = next(i for i, kind in enumerate(full.unet["down_block_types"]) if "CrossAttn" in kind)
    kept = [first, -1][:levels]
    unet = _cut(full.unet, kept)
    unet["up_block_types"] = [full.unet["up_block_types"][-1 - level] for level in reversed(kept)]
    if levels == 1:
        unet["mid_block_type"] = None
    encoders = tuple({**encoder, "num_hidden_layers": 2} for encoder in full.text_encoders)
    return replace(full, unet=unet, vae=_cut(full.vae, kept), text_encoders=encoders)


def _cut(config: Mapping[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """Every setting that says something per level, for the levels that are kept."""
    levels = len(config["block_out_channels"])
    per_level = {key for key, value in config.items() if isinstance(value, list) and len(value) == levels}
    cut = {key: [config[key][level] for level in kept] for key in per_level}
    if "transformer_layers_per_block" in cut:
        cut["transformer_layers_per_block"] = [1] * len(kept)
    return {**config, **cut, "layers_per_block": 1}
