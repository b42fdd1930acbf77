"""Determines an image's background color from its border, without a neural network."""

from __future__ import annotations

import torch
from torch import Tensor

from calotype.datasets.emoji.backgrounds import BACKGROUNDS

BORDER = 32
"""The border's width is the side divided by this."""
TOLERANCE = 30
"""Tolerance per channel in steps of 1/255; any two colors of the set differ by more than twice that."""
MIN_UNIFORM = 0.75
"""Minimum share of the border with the color."""


def background_of(picture: Tensor) -> str | None:
    """Return the border color of a (3, height, width) uint8 image; None if it is not in the set."""
    border = _border(picture).int()
    middle = border.median(dim=1, keepdim=True).values
    uniform = ((border - middle).abs().amax(0) <= TOLERANCE).float().mean()
    distances = {name: _distance(middle, colour) for name, colour in BACKGROUNDS.items()}
    nearest = min(distances, key=distances.__getitem__)
    return nearest if uniform >= MIN_UNIFORM and distances[nearest] <= TOLERANCE else None


def _border(picture: Tensor) -> Tensor:
    """Return the border's pixels, one per column."""
    wide = max(1, picture.shape[-1] // BORDER)
    sides = (
        picture[:, :wide],
        picture[:, -wide:],
        picture[:, wide:-wide, :wide],
        picture[:, wide:-wide, -wide:],
    )
    return torch.cat([side.flatten(1) for side in sides], dim=1)


def _distance(colour: Tensor, named: tuple[int, int, int]) -> int:
    return int((colour.flatten() - torch.tensor(named)).abs().max())
