"""Implements the CONDITIONING nodes, in the layout of `conditioning_masks`. Values never change in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from calotype.workflow.node_api import Context
from calotype.workflow.nodes.impl.conditioning_masks import AREA_UNIT, PERCENTAGE, Pairs

POOLED = "pooled_output"


def combine(_context: Context, conditioning_1: Pairs, conditioning_2: Pairs) -> tuple[Pairs]:
    """Both apply; where they overlap, their estimates are averaged."""
    return ([*conditioning_1, *conditioning_2],)


def concat(_context: Context, conditioning_to: Pairs, conditioning_from: Pairs) -> tuple[Pairs]:
    """Append the first text of `conditioning_from` to each text of `conditioning_to`."""
    after = conditioning_from[0][0]
    return ([(torch.cat([text, after], dim=1), options) for text, options in conditioning_to],)


def average(
    _context: Context,
    conditioning_to: Pairs,
    conditioning_from: Pairs,
    conditioning_to_strength: float,
) -> tuple[Pairs]:
    """Interpolate each text of `conditioning_to` with the first of `conditioning_from`."""
    other, other_options = conditioning_from[0]
    other_pooled, share = other_options.get(POOLED), conditioning_to_strength
    averaged = []
    for text, options in conditioning_to:
        length = text.shape[1]
        fitted = pad(other[:, :length], (0, 0, 0, max(0, length - other.shape[1])))
        pooled = options.get(POOLED)
        changed = dict(options)
        if other_pooled is not None:
            own = other_pooled if pooled is None else pooled
            changed[POOLED] = torch.lerp(other_pooled, own, share)
        averaged.append((torch.lerp(fitted, text, share), changed))
    return (averaged,)


def set_area(
    _context: Context, conditioning: Pairs, width: int, height: int, x: int, y: int, strength: float
) -> tuple[Pairs]:
    area = tuple(pixels // AREA_UNIT for pixels in (height, width, y, x))
    return _with(conditioning, area=area, strength=strength, set_area_to_bounds=False)


def set_area_percentage(
    _context: Context, conditioning: Pairs, width: float, height: float, x: float, y: float, strength: float
) -> tuple[Pairs]:
    area = (PERCENTAGE, height, width, y, x)
    return _with(conditioning, area=area, strength=strength, set_area_to_bounds=False)


def set_area_strength(_context: Context, conditioning: Pairs, strength: float) -> tuple[Pairs]:
    return _with(conditioning, strength=strength)


def set_mask(
    _context: Context, conditioning: Pairs, mask: Tensor, strength: float, set_cond_area: str
) -> tuple[Pairs]:
    mask = mask.reshape(-1, *mask.shape[-2:])
    bounds = set_cond_area != "default"
    return _with(conditioning, mask=mask, mask_strength=strength, set_area_to_bounds=bounds)


def set_timestep_range(_context: Context, conditioning: Pairs, start: float, end: float) -> tuple[Pairs]:
    return _with(conditioning, start_percent=start, end_percent=end)


def zero_out(_context: Context, conditioning: Pairs) -> tuple[Pairs]:
    return (
        [
            (
                torch.zeros_like(text),
                {**options, POOLED: torch.zeros_like(options[POOLED])} if POOLED in options else options,
            )
            for text, options in conditioning
        ],
    )


def _with(conditioning: Pairs, **options: Any) -> tuple[Pairs]:
    return ([(text, {**old, **options}) for text, old in conditioning],)
