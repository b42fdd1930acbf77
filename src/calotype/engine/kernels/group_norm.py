"""Group normalisation of channels-last pictures, with what stands around it in a resnet.

Knows nothing of resnets: who calls decides about activation, time embedding and skip connection.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.choice import runs_triton


def group_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool = False,
    shift: Tensor | None = None,
) -> Tensor:
    """Of `x` (N, C, H, W), channels-last like the result.

    `shift` (N, C), whose rows may lie apart, is added before normalising; `silu` follows it.
    """
    if runs_triton(x):
        from calotype.engine.kernels import group_norm_triton  # noqa: PLC0415 - needs Triton

        return group_norm_triton.launch(x, None, weight, bias, num_groups, eps, silu=silu, shift=shift)[0]
    return plain(x, weight, bias, num_groups, eps, silu=silu, shift=shift)


def group_norm_of_pair(
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool = False,
    keep: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Of `cat([a, b], 1)`; the concatenation itself comes second where it is to be kept."""
    if runs_triton(a):
        from calotype.engine.kernels import group_norm_triton  # noqa: PLC0415 - needs Triton

        return group_norm_triton.launch(a, b, weight, bias, num_groups, eps, silu=silu, keep=keep)
    joined = torch.cat([a, b], 1)
    return plain(joined, weight, bias, num_groups, eps, silu=silu), joined if keep else None


def plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool,
    shift: Tensor | None = None,
) -> Tensor:
    """The same in torch's own operations."""
    if shift is not None:
        x = x + shift[:, :, None, None]
    x = functional.group_norm(x, num_groups, weight.to(x.dtype), bias.to(x.dtype), eps)
    return (functional.silu(x) if silu else x).contiguous(memory_format=torch.channels_last)
