"""The gradient of feed-forward layers' gates and of the bias before them in one pass over memory.

Left to itself a compiler writes the gradient of the projection and then reads all of it again, only to sum it
for the bias. `use_fused_geglu_backward` takes the bias out of the projection, adds it at the gate, and
computes both gradients in one kernel. For compiled networks only: they fuse the addition with what follows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from calotype.engine.kernels.geglu_backward import geglu_backward

if TYPE_CHECKING:
    from diffusers.models.activations import GEGLU


class _Gated(torch.autograd.Function):
    """A half of `projected + bias` times the GELU of the other half, in fp32 and rounded once."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(projected, bias)
        value, gate = (projected.float() + bias.float()).chunk(2, -1)
        return (value * gelu(gate)).to(projected.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        projected, bias = ctx.saved_tensors
        of_projected, of_bias = geglu_backward(gradient, projected, bias)
        return of_projected, of_bias.to(bias.dtype)


def use_fused_geglu_backward(network: nn.Module) -> None:
    """Change every gate behind a plain linear layer with a bias; parameters and their names stay."""
    from diffusers.models.activations import GEGLU  # noqa: PLC0415 - seconds to import

    for part in network.modules():
        # A layer of another kind, such as one with a LoRA around it, does more than its weight and bias say.
        if isinstance(part, GEGLU) and type(part.proj) is nn.Linear and part.proj.bias is not None:
            part.forward = partial(_forward, part)


def _forward(gate: GEGLU, hidden_states: Tensor) -> Tensor:
    return _Gated.apply(linear(hidden_states, gate.proj.weight), gate.proj.bias)
