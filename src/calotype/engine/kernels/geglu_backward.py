"""The gradient of GEGLU, and of the bias that is added before it.

The bias's gradient is a sum over all rows of what is written anyway. Summed where it is worked out, it costs
no second pass over memory; a compiler left to itself writes 2d numbers a row and reads them all again.
Registered as a torch op, so that a compiler does not trace into it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import runs_triton_on

_SCHEMA = "(Tensor gradient, Tensor projected, Tensor bias) -> (Tensor, Tensor)"


@torch.library.custom_op("calotype::geglu_backward", mutates_args=(), schema=_SCHEMA)
def geglu_backward(gradient: Tensor, projected: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradient (…, d) of the gated numbers that of `projected` (…, 2d) and, in fp32, of `bias` (2d).

    `projected` does not include the bias. Uses the exact GELU.
    """
    if runs_triton_on(projected.device):
        from calotype.engine.kernels import geglu_backward_triton  # noqa: PLC0415 - needs Triton

        return geglu_backward_triton.launch(gradient, projected, bias)
    return plain(gradient, projected, bias)


@geglu_backward.register_fake
def _shapes(gradient: Tensor, projected: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001 - as called
    """Metadata of the outputs, contiguous for any input strides; for compilers."""
    return projected.new_empty(projected.shape), bias.new_empty(bias.shape, dtype=torch.float32)


def plain(gradient: Tensor, projected: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same with torch's own operations."""
    outer = gradient.float()
    value, gate = (projected.float() + bias.float()).chunk(2, -1)
    below = 0.5 * (1 + torch.erf(gate * 0.5**0.5))
    density = torch.exp(-0.5 * gate.square()) * (2 * torch.pi) ** -0.5
    both = torch.cat([outer * gate * below, outer * value * (below + gate * density)], -1)
    return both.to(projected.dtype), both.flatten(0, -2).sum(0)
