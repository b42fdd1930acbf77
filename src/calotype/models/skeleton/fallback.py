"""The base class of skeletons: layers and weights whose forward pass falls back to diffusers' module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from calotype.models.hf_classes import library_module
from calotype.models.skeleton.config import Settings


class Skeleton(nn.Module):
    """The layers of diffusers' module of the same configuration under the same names, without its code."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.config = settings
        # In a list, so that torch does not register it as a submodule.
        self._library_module: list[nn.Module] = []

    def theirs(self) -> Any:
        """diffusers' module with the same weight tensors, wherever they are now."""
        if not self._library_module:
            with torch.device("meta"):
                self._library_module.append(library_module(self.config).requires_grad_(False).eval())
        module = self._library_module[0]
        for name, layer in self.named_modules():
            # A pass may have replaced parameters since the last call.
            module.get_submodule(name)._parameters.update(layer._parameters)
        return module

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.theirs()(*inputs, **named)


def library_class(module: Any) -> Any:
    """The module as an instance of the library's class."""
    return module.theirs() if isinstance(module, Skeleton) else module
