"""Layers and weights without a forward pass, which is diffusers' where one is asked for.

Knows no kind of part.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from calotype.models.hf_classes import library_module
from calotype.models.skeleton.config import Settings


class Skeleton(nn.Module):
    """All that diffusers' module of the same configuration has, by the same names, but for what it does."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.config = settings
        # In a list, so that torch does not take it for a part of this one.
        self._twin: list[nn.Module] = []

    def theirs(self) -> Any:
        """diffusers' own module with these weights: the very same tensors, wherever they are now."""
        if not self._twin:
            with torch.device("meta"):
                self._twin.append(library_module(self.config).requires_grad_(False).eval())
        twin = self._twin[0]
        for name, layer in self.named_modules():
            # A pass may have put others in the place of those of the last time.
            twin.get_submodule(name)._parameters.update(layer._parameters)
        return twin

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.theirs()(*inputs, **named)


def library_class(module: Any) -> Any:
    """The module as an instance of the library's class, for whoever needs no less."""
    return module.theirs() if isinstance(module, Skeleton) else module
