"""Merges adapters into the weights of a loaded model and restores the base weights bit for bit.

Weights change in place, so CUDA graphs and compiled code stay valid, and the base model is never read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from calotype.models.architecture import module_name
from calotype.models.lora.adapter import Adapter, LayerUpdate, Target

Updates = list[tuple[LayerUpdate, float]]
Use = tuple[Adapter, float, float]
"""An adapter, its strength in the UNet, its strength in the text encoders."""


class LoraMerger:
    """Merges adapters; keeps an original copy of every weight that an adapter has changed."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        self._parts = parts
        self._originals: dict[Target, Tensor] = {}
        self._merged: dict[Target, Updates] = {}
        """The updates in each changed weight; an empty list while the weight is being written."""

    @torch.no_grad()
    def use(self, uses: Sequence[Use]) -> None:
        """Make exactly these adapters active; an empty list restores the base weights bit for bit."""
        wanted = _by_layer(uses)
        for target in self._merged.keys() - wanted.keys():
            self._weight(target).copy_(self._originals[target])
            del self._merged[target]
        for target, updates in wanted.items():
            if _same(self._merged.get(target), updates):
                continue
            weight = self._weight(target)
            if target not in self._originals:
                self._originals[target] = weight.detach().to("cpu", copy=True)
            # Recorded before the change: if that fails halfway, the next call still restores the weight.
            self._merged[target] = []
            # Always start from the original copy: adding and subtracting would accumulate rounding errors.
            total = self._originals[target].to(weight.device, torch.float32, copy=True)
            for update, amount in updates:
                total += amount * update.delta(weight.shape, weight.device)
            weight.copy_(total)
            self._merged[target] = updates

    def _weight(self, target: Target) -> Tensor:
        part, module = target
        model = self._parts[part]
        return model.get_submodule(module_name(module, model)).get_parameter("weight")


def _same(one: Updates | None, other: Updates) -> bool:
    return (
        one is not None
        and len(one) == len(other)
        and all(a is b and x == y for (a, x), (b, y) in zip(one, other, strict=True))
    )


def _by_layer(uses: Sequence[Use]) -> dict[Target, Updates]:
    wanted: dict[Target, Updates] = defaultdict(list)
    for adapter, strength, text_strength in uses:
        for target, update in adapter.layers.items():
            amount = strength if target[0] == "unet" else text_strength
            if amount:
                wanted[target].append((update, amount))
    return wanted
