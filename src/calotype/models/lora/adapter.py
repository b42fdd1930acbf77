"""A LoRA independent of its file format: one low-rank update per layer.

Hu et al. 2021, arXiv:2106.09685: W' = W + strength · (alpha / rank) · up · down.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Target = tuple[str, str]
"""The part of a model and the module in it that an update applies to, under published names."""


@dataclass(frozen=True)
class LayerUpdate:
    """The update of one linear or convolution layer."""

    down: Tensor
    up: Tensor
    alpha: float
    middle: Tensor | None = None
    """Core of a Tucker-decomposed convolution, if the trainer wrote one."""

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    def delta(self, shape: torch.Size, device: torch.device) -> Tensor:
        """The update at strength 1 for a weight of this shape, in fp32."""
        down, up = self.down.to(device, torch.float32), self.up.to(device, torch.float32)
        if self.middle is None:
            product = up.flatten(1) @ down.flatten(1)
        else:
            core = self.middle.to(device, torch.float32)
            product = torch.einsum("or,rshw,si->oihw", up.flatten(1), core, down.flatten(1))
        return product.reshape(shape) * (self.alpha / self.rank)


@dataclass(frozen=True)
class Adapter:
    """A whole LoRA: the update of each (part, module) it touches."""

    name: str
    layers: Mapping[Target, LayerUpdate]
