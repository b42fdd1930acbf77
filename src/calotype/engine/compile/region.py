"""A part of a network that can be compiled by itself: a function of tensors, its weights among them.

Weights are handed in at every call, so what was compiled follows them when they change in place, and serves
every part of the same form. Knows nothing of compilers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Inputs = tuple[Tensor | None, ...]
Kind = tuple[tuple[Any, ...] | None, ...]
"""What decides how inputs are compiled for: their sizes, but for those that stay open."""


class RegionSignature(NamedTuple):
    """A tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> RegionSignature:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


RegionSignatures = tuple[RegionSignature | None, ...]


@dataclass(frozen=True, eq=False)
class Region:
    """A module of a network and our way through it."""

    name: str
    """The module's place in the network: another process finds it by that."""
    module: nn.Module
    walk: Callable[..., Any]
    settings: str = ""
    """What decides the arithmetic and is not written on the module."""
    open_sizes: Mapping[int, int] = field(default_factory=dict)
    """Input → the dimension that may be of any size: the tokens of a prompt."""

    def weights(self) -> dict[str, Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def kind(self, inputs: Inputs) -> Kind:
        return tuple(self._kind(place, each) for place, each in enumerate(inputs))

    def weight_layout(self, inputs: Inputs) -> Inputs:
        """Those with an open size without gaps: how far apart their rows lie would be one more size."""
        return tuple(
            each.contiguous() if each is not None and place in self.open_sizes else each
            for place, each in enumerate(inputs)
        )

    def signature(self, kind: Kind) -> str:
        """The same for all regions that one compilation serves."""
        weights = [(n, list(w.shape), w.stride(), str(w.dtype)) for n, w in self.weights().items()]
        # Those with weights alone: they are the same whoever built the module.
        layers = [
            (name, type(each).__name__, each.extra_repr())
            for name, each in self.module.named_modules()
            if each._parameters
        ]
        values = [type(self.walk).__name__, self.settings, layers, weights, kind]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]

    def _kind(self, place: int, given: Tensor | None) -> tuple[Any, ...] | None:
        if given is None:
            return None
        sizes, about = list(given.shape), (str(given.dtype), given.device.type)
        if place not in self.open_sizes:
            return (*sizes, given.stride(), *about)
        sizes[self.open_sizes[place]] = -1
        return (*sizes, *about)


@dataclass(frozen=True)
class CompileRequest:
    """A region to be compiled for inputs of one kind."""

    signature: str
    region: Region
    forms: RegionSignatures


Wrap = Callable[[Region], Callable[..., Any]]
"""How a network runs its regions."""


def unwrapped(region: Region) -> Callable[..., Any]:
    return region.walk
