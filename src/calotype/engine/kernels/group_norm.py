"""Group normalization of channels-last images, fused with the operations around it in a resnet.

With a `factor` the result is multiplied by it and written in e4m3, for a convolution that reads it so; what
is too large then is cut off. Knows nothing of resnets: who calls decides about activation, time embedding and
skip connection.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.dispatch import runs_triton
from calotype.engine.kernels.fp8_conv import to_e4m3


def group_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool = False,
    shift: Tensor | None = None,
    factor: float | None = None,
) -> Tensor:
    """Group norm of `x` (N, C, H, W), channels-last like the result.

    `shift` (N, C), whose rows may be strided, is added before normalization; `silu` follows it.
    """
    if runs_triton(x, fp8=factor is not None):
        from calotype.engine.kernels import group_norm_launch  # noqa: PLC0415 - needs Triton

        return group_norm_launch.launch(
            x, weight, bias, num_groups, eps, silu=silu, shift=shift, factor=factor
        )[0]
    return plain(x, weight, bias, num_groups, eps, silu=silu, shift=shift, factor=factor)


def add_group_norm(
    x: Tensor,
    addend: Tensor | None,
    extra: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool = False,
    factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Group norm of `x + addend + extra`, and the sum itself; `extra` has one value per channel."""
    if runs_triton(x, fp8=factor is not None):
        from calotype.engine.kernels import group_norm_launch  # noqa: PLC0415 - needs Triton

        return group_norm_launch.launch(
            x, weight, bias, num_groups, eps, silu=silu, addend=addend, extra=extra, factor=factor
        )
    total = plain_sum(x, addend, extra)
    return plain(total, weight, bias, num_groups, eps, silu=silu, factor=factor), total


def group_norm_concat(
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool = False,
    addend: Tensor | None = None,
    extra: Tensor | None = None,
    factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Group norm of `cat([a + addend + extra, b], 1)`, and the concatenation itself."""
    if runs_triton(a, fp8=factor is not None):
        from calotype.engine.kernels import group_norm_launch  # noqa: PLC0415 - needs Triton

        return group_norm_launch.launch(
            a, weight, bias, num_groups, eps, silu=silu, b=b, addend=addend, extra=extra, factor=factor
        )
    joined = torch.cat([plain_sum(a, addend, extra), b], 1)
    return plain(joined, weight, bias, num_groups, eps, silu=silu, factor=factor), joined


def plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool,
    shift: Tensor | None = None,
    factor: float | None = None,
) -> Tensor:
    """The same with torch's own operations."""
    if shift is not None:
        x = x + shift[:, :, None, None]
    x = functional.group_norm(x, num_groups, weight.to(x.dtype), bias.to(x.dtype), eps)
    x = (functional.silu(x) if silu else x).contiguous(memory_format=torch.channels_last)
    return x if factor is None else to_e4m3(x, factor)


def plain_sum(x: Tensor, addend: Tensor | None, extra: Tensor | None) -> Tensor:
    if addend is not None:
        x = x + addend
    return x if extra is None else x + extra[:, None, None]
