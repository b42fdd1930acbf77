"""Augments real images with small errors of models: shifts, bends, blur, noise, color changes.

They make the classifier tolerant of such errors. Image values range from −1 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, interpolate, pad

_BENDS = 4
"""Control points per side that move independently."""


@dataclass(frozen=True)
class Amount:
    """The maximum of each augmentation; every image gets a random share of it."""

    scale: float = 0.08
    turn: float = 0.08
    """Radians."""
    shift: float = 0.07
    """As a share of half the image."""
    bend: float = 0.03
    """The same."""
    blur: float = 1.0
    """1 is a 5×5 binomial window; sharpening is half as much the other way."""
    noise: float = 0.12
    gain: float = 0.1
    offset: float = 0.08


USUAL = Amount()
SLIGHT = Amount(scale=0.04, turn=0.04, shift=0.04, bend=0.015, blur=0.7, noise=0.06, gain=0.05, offset=0.04)
"""The strength that the evaluation calls degraded."""


def augment(pictures: Tensor, amount: Amount, generator: torch.Generator) -> Tensor:
    """Augment each image with random strength."""
    draw = _Draw(len(pictures), generator)
    moved = _moved(pictures, amount, draw)
    blurred = _blurred(moved)
    much = amount.blur * (draw.uniform(1, 1, 1) * 0.75 + 0.25)
    soft = moved + much * (blurred - moved)
    toned = soft * (1 + amount.gain * draw.uniform(3, 1, 1)) + amount.offset * draw.uniform(3, 1, 1)
    strength = amount.noise * draw.uniform(1, 1, 1).abs()
    return (toned + strength * draw.normal(toned)).clamp(-1, 1)


class _Draw:
    """Random numbers for a batch, determined by the generator's state."""

    def __init__(self, count: int, generator: torch.Generator) -> None:
        self._count, self._generator = count, generator

    def uniform(self, *shape: int) -> Tensor:
        """From −1 to 1."""
        size, place = (self._count, *shape), self._generator.device
        return torch.rand(size, generator=self._generator, device=place) * 2 - 1

    def normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._generator, device=self._generator.device)


def _moved(pictures: Tensor, amount: Amount, draw: _Draw) -> Tensor:
    size, turn, shift = 1 + amount.scale * draw.uniform(1), amount.turn * draw.uniform(1), draw.uniform(2, 1)
    cos, sin = size * turn.cos(), size * turn.sin()
    rows = torch.stack([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)], 1)
    grid = affine_grid(torch.cat([rows, amount.shift * shift], 2), list(pictures.shape), align_corners=False)
    coarse = amount.bend * draw.uniform(2, _BENDS, _BENDS)
    bend = interpolate(coarse, pictures.shape[-2:], mode="bicubic", align_corners=False)
    # Pixels from beyond the border repeat the border, which shows the background.
    where = grid + bend.permute(0, 2, 3, 1)
    return grid_sample(pictures, where, padding_mode="border", align_corners=False)


def _blurred(pictures: Tensor) -> Tensor:
    channels = pictures.shape[1]
    window = pictures.new_tensor([1, 4, 6, 4, 1]) / 16
    across = window.expand(channels, 1, 1, 5)
    padded = pad(pictures, (2, 2, 2, 2), mode="replicate")
    return conv2d(conv2d(padded, across, groups=channels), across.transpose(-1, -2), groups=channels)
