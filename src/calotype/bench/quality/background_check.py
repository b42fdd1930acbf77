"""Reads a picture's background off its border. Uses no network, so it can be checked by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from calotype.datasets.emoji.backgrounds import BACKGROUNDS

BORDER = 32
"""The border is one part in so many of a side wide."""
TOLERANCE = 30
"""Steps of 1/255 that any channel may be off; no two colours of the set are within twice that."""
MIN_UNIFORM = 0.75
"""Share of the border that must have its colour."""


def background_of(picture: Tensor) -> str | None:
    """The border's colour in a (3, height, width) uint8 picture; None if it has none of the set's."""
    border = _border(picture).int()
    middle = border.median(dim=1, keepdim=True).values
    uniform = ((border - middle).abs().amax(0) <= TOLERANCE).float().mean()
    distances = {name: _distance(middle, colour) for name, colour in BACKGROUNDS.items()}
    nearest = min(distances, key=distances.__getitem__)
    return nearest if uniform >= MIN_UNIFORM and distances[nearest] <= TOLERANCE else None


def _border(picture: Tensor) -> Tensor:
    """Its pixels, one per column."""
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
