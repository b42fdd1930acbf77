"""Networks that wait in main memory, of which each layer visits a device while it runs.

So a network costs the device its largest layer, and as much is copied as if it were moved whole. What was on
the device is dropped, not copied back: running changes no weight. Knows nothing of what the networks are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def cpu_offload(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Within, the network may be called with inputs on the device."""
    layers = [each for each in network.modules() if each._parameters or each._buffers]
    stays = [_OnDevice(layer, device) for layer in layers]
    handles = [
        handle
        for layer, stay in zip(layers, stays, strict=True)
        for handle in (
            layer.register_forward_pre_hook(stay.load),
            layer.register_forward_hook(stay.unload, always_call=True),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _OnDevice:
    """One layer's own tensors, at home and away."""

    def __init__(self, layer: nn.Module, device: torch.device) -> None:
        self._kept: tuple[dict[str, Any], ...] = (layer._parameters, layer._buffers)
        self._device = device
        self._home: list[dict[str, Any]] = []

    def load(self, *_: Any) -> None:
        self._home = [dict(tensors) for tensors in self._kept]
        for tensors in self._kept:
            tensors.update(
                {name: each.to(self._device) for name, each in tensors.items() if each is not None}
            )

    def unload(self, *_: Any) -> None:
        for tensors, home in zip(self._kept, self._home, strict=False):
            tensors.update(home)
        self._home = []
