"""The adapters that are in a live model just now; puts others in and takes them out, to the bit.

Weights are changed in place, so whatever was captured or compiled around them stays valid, and the base model
is never read again. Knows nothing of files.
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
    """Holds the untouched copy of every weight an adapter has ever changed here."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        self._parts = parts
        self._untouched: dict[Target, Tensor] = {}
        self._changed: dict[Target, Updates] = {}
        """What is in each changed weight; nothing while it is being written."""

    @torch.no_grad()
    def use(self, uses: Sequence[Use]) -> None:
        """Make exactly these adapters active; an empty list restores the base weights bit for bit."""
        wanted = _by_layer(uses)
        for target in self._changed.keys() - wanted.keys():
            self._weight(target).copy_(self._untouched[target])
            del self._changed[target]
        for target, updates in wanted.items():
            if _same(self._changed.get(target), updates):
                continue
            weight = self._weight(target)
            if target not in self._untouched:
                self._untouched[target] = weight.detach().to("cpu", copy=True)
            # Noted before the change: if that fails halfway, the next call still knows what to restore.
            self._changed[target] = []
            # From the untouched copy each time: adding and subtracting would leave rounding behind.
            total = self._untouched[target].to(weight.device, torch.float32, copy=True)
            for update, amount in updates:
                total += amount * update.delta(weight.shape, weight.device)
            weight.copy_(total)
            self._changed[target] = updates

    def _weight(self, target: Target) -> Tensor:
        part, module = target
        live = self._parts[part]
        return live.get_submodule(module_name(module, live)).get_parameter("weight")


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
