"""Several layers that read the same input, as one. Knows nothing of networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


@torch.no_grad()
def fuse_linears(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """The layers' weights one below the other, and their biases.

    Each layer's own weight becomes a view into the whole: who changes it in place, as a LoRA does, changes
    both. Biases are copied: nothing changes them. Layers that were joined before stay where they are, since
    what another engine of the model has recorded reads them there.
    """
    sizes = [len(layer.weight) for layer in layers]
    whole = _joined_before([layer.weight for layer in layers])
    if whole is None:
        whole = torch.cat([layer.weight for layer in layers])
        for layer, part in zip(layers, whole.split(sizes), strict=True):
            layer.weight = nn.Parameter(part, requires_grad=False)
    if all(layer.bias is None for layer in layers):
        return whole, None
    biases: list[Tensor] = [
        layer.weight.new_zeros(size) if layer.bias is None else layer.bias
        for layer, size in zip(layers, sizes, strict=True)
    ]
    return whole, torch.cat(biases)


def _joined_before(weights: Sequence[Tensor]) -> Tensor | None:
    """The whole of weights that lie one below the other in the same memory."""
    first, place = weights[0], weights[0].storage_offset()
    for weight in weights:
        alike = weight.is_contiguous() and weight.shape[1:] == first.shape[1:] and weight.dtype == first.dtype
        same = weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (alike and same and weight.storage_offset() == place):
            return None
        place += weight.numel()
    return first.detach().as_strided((sum(map(len, weights)), *first.shape[1:]), first.stride())
