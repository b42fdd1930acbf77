"""Processes an image in overlapping tiles and blends them without seams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import ceil

import torch
from torch import Tensor

LATENT_OVERLAP = 0.25
"""Share of a tile that overlaps its neighbor."""


@dataclass(frozen=True)
class TiledVae:
    """How an image is tiled. Sizes are in latent pixels, so that tiles align with latent pixels."""

    side: int
    in_scale: int
    """Pixels of the input per latent pixel."""
    out_scale: int
    """Pixels of the output per latent pixel."""
    out_channels: int
    overlap: int | None = None
    """Overlap with a tile's neighbor; None for a share of the side."""

    def apply(self, work: Callable[[Tensor], Tensor], picture: Tensor) -> Tensor:
        """Apply `work` to (1, channels, height, width) tile by tile and blend the overlaps, in fp32."""
        height, width = (size // self.in_scale for size in picture.shape[-2:])
        size = (height * self.out_scale, width * self.out_scale)
        total = torch.zeros(1, self.out_channels, *size, device=picture.device)
        weights = torch.zeros(size, device=picture.device)
        for top, left in product(self._starts(height), self._starts(width)):
            rows, columns = (self._slice(start, self.in_scale) for start in (top, left))
            processed = work(picture[..., rows, columns]).float()
            weight = torch.outer(
                *(self._blend_weights(length, processed.device) for length in processed.shape[-2:])
            )
            rows, columns = (self._slice(start, self.out_scale) for start in (top, left))
            total[..., rows, columns] += processed * weight
            weights[rows, columns] += weight
        return total / weights

    def _starts(self, length: int) -> list[int]:
        """Start positions of tiles: evenly spaced, so that no tile is very narrow."""
        if length <= self.side:
            return [0]
        count = ceil((length - self._overlap) / (self.side - self._overlap))
        return [round(index * (length - self.side) / (count - 1)) for index in range(count)]

    @property
    def _overlap(self) -> int:
        return max(1, int(self.side * LATENT_OVERLAP) if self.overlap is None else self.overlap)

    def _blend_weights(self, length: int, device: torch.device) -> Tensor:
        """Blend weight of each pixel of a tile: lower towards its edges."""
        positions = torch.arange(length, device=device) + 0.5
        return torch.minimum(positions, length - positions).clamp(max=self._overlap * self.out_scale)

    def _slice(self, start: int, scale: int) -> slice:
        return slice(start * scale, (start + self.side) * scale)
