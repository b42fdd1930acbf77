"""A picture worked on in overlapping tiles and put together without seams.

Knows nothing of what is done to a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import ceil

import torch
from torch import Tensor

LATENT_OVERLAP = 0.25
"""Share of a tile that its neighbour sees too."""


@dataclass(frozen=True)
class TiledVae:
    """How a picture is cut. Sizes are in latent pixels, so that tiles begin where latent pixels do."""

    side: int
    in_scale: int
    """Pixels of the input per latent pixel."""
    out_scale: int
    """Pixels of the output per latent pixel."""
    out_channels: int
    overlap: int | None = None
    """What a tile's neighbour sees too; a share of the side if nothing is said."""

    def apply(self, work: Callable[[Tensor], Tensor], picture: Tensor) -> Tensor:
        """`work` done on (1, channels, height, width) tile by tile; neighbours fade into each other. fp32."""
        height, width = (size // self.in_scale for size in picture.shape[-2:])
        size = (height * self.out_scale, width * self.out_scale)
        total = torch.zeros(1, self.out_channels, *size, device=picture.device)
        weights = torch.zeros(size, device=picture.device)
        for top, left in product(self._starts(height), self._starts(width)):
            rows, columns = (self._stretch(start, self.in_scale) for start in (top, left))
            done = work(picture[..., rows, columns]).float()
            weight = torch.outer(*(self._fade(length, done.device) for length in done.shape[-2:]))
            rows, columns = (self._stretch(start, self.out_scale) for start in (top, left))
            total[..., rows, columns] += done * weight
            weights[rows, columns] += weight
        return total / weights

    def _starts(self, length: int) -> list[int]:
        """Where tiles begin: evenly spread, so that none is a sliver."""
        if length <= self.side:
            return [0]
        count = ceil((length - self._overlap) / (self.side - self._overlap))
        return [round(index * (length - self.side) / (count - 1)) for index in range(count)]

    @property
    def _overlap(self) -> int:
        return max(1, int(self.side * LATENT_OVERLAP) if self.overlap is None else self.overlap)

    def _fade(self, length: int, device: torch.device) -> Tensor:
        """How much each pixel of a tile counts: less towards its edges."""
        places = torch.arange(length, device=device) + 0.5
        return torch.minimum(places, length - places).clamp(max=self._overlap * self.out_scale)

    def _stretch(self, start: int, scale: int) -> slice:
        return slice(start * scale, (start + self.side) * scale)
