"""Several layers that read the same input, as one. Knows nothing of networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


@torch.no_grad()
def joined(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """The layers' weights one below the other, and their biases.

    Each layer's own weight becomes a view into the whole: who changes it in place, as a LoRA does, changes
    both. Biases are copied: nothing changes them.
    """
    whole = torch.cat([layer.weight for layer in layers])
    sizes = [len(layer.weight) for layer in layers]
    for layer, part in zip(layers, whole.split(sizes), strict=True):
        layer.weight = nn.Parameter(part, requires_grad=False)
    if all(layer.bias is None for layer in layers):
        return whole, None
    biases: list[Tensor] = [
        layer.weight.new_zeros(size) if layer.bias is None else layer.bias
        for layer, size in zip(layers, sizes, strict=True)
    ]
    return whole, torch.cat(biases)
