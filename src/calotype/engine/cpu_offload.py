"""Keeps a network in main memory and moves each layer to the device only while the layer runs.

The network then takes the device memory of its largest layer, and the copies amount to one move of the whole
network. The device copies are dropped, not copied back: running a layer does not change its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def cpu_offload(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Allow calls of the network with inputs on the device."""
    layers = [each for each in network.modules() if each._parameters or each._buffers]
    movers = [_LayerMover(layer, device) for layer in layers]
    handles = [
        handle
        for layer, mover in zip(layers, movers, strict=True)
        for handle in (
            layer.register_forward_pre_hook(mover.load),
            layer.register_forward_hook(mover.unload, always_call=True),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _LayerMover:
    """Moves one layer's own tensors to the device and back."""

    def __init__(self, layer: nn.Module, device: torch.device) -> None:
        self._current: tuple[dict[str, Any], ...] = (layer._parameters, layer._buffers)
        self._device = device
        self._cpu_tensors: list[dict[str, Any]] = []

    def load(self, *_: Any) -> None:
        self._cpu_tensors = [dict(tensors) for tensors in self._current]
        for tensors in self._current:
            tensors.update(
                {name: each.to(self._device) for name, each in tensors.items() if each is not None}
            )

    def unload(self, *_: Any) -> None:
        for tensors, cpu_tensors in zip(self._current, self._cpu_tensors, strict=False):
            tensors.update(cpu_tensors)
        self._cpu_tensors = []
