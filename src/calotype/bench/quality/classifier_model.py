"""The classifier's network: a few convolutions with two heads, emoji and style."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pixel_unshuffle, relu

SIDE = 64
"""Input size in pixels."""
WIDTHS = (24, 48, 96, 192)
EMBEDDING = 160


class ClassifierNet(nn.Module):
    """Maps images from −1 to 1 to scores."""

    def __init__(self, num_emoji: int, num_styles: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(12, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0])
        )
        self.blocks = nn.Sequential(*(_DownsampleBlock(before, after) for before, after in pairwise(WIDTHS)))
        # No global pooling: emoji such as clock faces differ by position only.
        self.embedding = nn.Linear(WIDTHS[-1] * (SIDE // 16) ** 2, EMBEDDING, bias=False)
        self.norm = nn.BatchNorm1d(EMBEDDING)
        self.emoji = nn.Linear(EMBEDDING, num_emoji)
        self.style = nn.Linear(EMBEDDING, num_styles)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the emoji and of the styles."""
        seen = self.norm(self._seen(pictures))
        return self.emoji(seen), self.style(seen)

    def features(self, pictures: Tensor) -> list[Tensor]:
        """Return the features of the layers, the first one first, as (number, channels, height, width)."""
        # Half as many places with four times the channels: the first layer is the dearest otherwise.
        seen = [relu(self.stem(pixel_unshuffle(pictures, 2)))]
        for block in self.blocks:
            seen.append(block(seen[-1]))
        return seen

    def _seen(self, pictures: Tensor) -> Tensor:
        return self.embedding(self.features(pictures)[-1].flatten(1))


class _DownsampleBlock(nn.Module):
    """Two convolutions with a shortcut; half the resolution, more channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(before, after, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norms[1](self.second(relu(self.norms[0](self.first(x)))))
        return relu(inner + self.shortcut(self.pool(x)))
