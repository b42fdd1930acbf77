"""A region of a network that can be compiled by itself: a function of inputs and weights.

Weights are passed at every call, so compiled code follows changes in place, and serves every region with the
same signature.
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
"""The properties of inputs that code is compiled for: their sizes, except dynamic ones."""


class RegionSignature(NamedTuple):
    """A tensor's metadata without its values."""

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
    """A module of a network with our own forward pass."""

    name: str
    """The module's name in the network, by which another process finds it."""
    module: nn.Module
    walk: Callable[..., Any]
    settings: str = ""
    """Settings that determine the arithmetic and are not attributes of the module."""
    open_sizes: Mapping[int, int] = field(default_factory=dict)
    """Input → its dynamic dimension: the tokens of a prompt."""

    def weights(self) -> dict[str, Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def kind(self, inputs: Inputs) -> Kind:
        return tuple(self._kind(index, each) for index, each in enumerate(inputs))

    def weight_layout(self, inputs: Inputs) -> Inputs:
        """Inputs with a dynamic size made contiguous: their row stride would be another dynamic size."""
        return tuple(
            each.contiguous() if each is not None and index in self.open_sizes else each
            for index, each in enumerate(inputs)
        )

    def signature(self, kind: Kind) -> str:
        """Equal for all regions that one compilation serves."""
        weights = [(n, list(w.shape), w.stride(), str(w.dtype)) for n, w in self.weights().items()]
        # Only layers with weights: these do not depend on who built the module.
        layers = [
            (name, type(each).__name__, each.extra_repr())
            for name, each in self.module.named_modules()
            if each._parameters
        ]
        values = [type(self.walk).__name__, self.settings, layers, weights, kind]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]

    def _kind(self, index: int, tensor: Tensor | None) -> tuple[Any, ...] | None:
        if tensor is None:
            return None
        sizes, properties = list(tensor.shape), (str(tensor.dtype), tensor.device.type)
        if index not in self.open_sizes:
            return (*sizes, tensor.stride(), *properties)
        sizes[self.open_sizes[index]] = -1
        return (*sizes, *properties)


@dataclass(frozen=True)
class CompileRequest:
    """A region to compile for one kind of inputs."""

    signature: str
    region: Region
    forms: RegionSignatures


Wrap = Callable[[Region], Callable[..., Any]]
"""Wraps a region for a network."""


def unwrapped(region: Region) -> Callable[..., Any]:
    return region.walk
