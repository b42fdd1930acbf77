"""A 3×3 convolution of e4m3 images with e4m3 weights.

A picture is multiplied by one factor before it is rounded to e4m3, a layer's own and known beforehand: what
comes out of a group norm and SiLU has the same range in every picture. e4m3 is a floating point format, so
within its range a factor that is a power of two changes no number's precision; it only decides which numbers
are too large (above 448, cut off) and which are too small to keep all their digits (below 2^-6).
"""

from __future__ import annotations

from math import floor, log2
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.dispatch import runs_triton_on
from calotype.engine.kernels.quantize import LARGEST, SMALLEST, VALUE_TYPES, quantize_rows

E4M3 = VALUE_TYPES["fp8"]
TAPS = 9
OLDEST = (9, 0)
"""Compute capability of the kernel: it needs Hopper's copy engine and tensor cores."""
WIDTHS = 16
"""Channels are multiples of this: the copy engine moves sixteen bytes at a time."""


class Weight(NamedTuple):
    """A layer's weight in e4m3 (9, channels out, channels in), and the scale of its sums (channels out)."""

    values: Tensor
    scale: Tensor


def fp8_conv(x: Tensor, weight: Weight, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Convolve `x` (N, C, H, W) in e4m3, channels-last like the result; zero padding, stride 1."""
    if runs_kernel_on(x.device) and not torch.compiler.is_compiling():
        from calotype.engine.kernels import fp8_conv_triton  # noqa: PLC0415 - needs Triton

        return fp8_conv_triton.launch(x, weight, bias, dtype)
    return plain(x, weight, bias, dtype)


def runs_kernel_on(device: torch.device) -> bool:
    """Whether the device supports the kernel."""
    return runs_triton_on(device, fp8=True) and torch.cuda.get_device_capability(device) >= OLDEST


def plain(x: Tensor, weight: Weight, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The same with torch's own convolution in fp32: few devices support e4m3."""
    taps = weight.values.float().permute(1, 2, 0).unflatten(2, (3, 3))
    sums = functional.conv2d(x.float(), taps, padding=1) * weight.scale[:, None, None]
    sums = sums if bias is None else sums + bias[:, None, None]
    return sums.to(dtype, memory_format=torch.channels_last)


def quantize_weight(weight: Tensor, factor: float) -> Weight:
    """`weight` (channels out, channels in, 3, 3) for images that were multiplied by `factor`.

    Each output channel has its own scale, so one large weight affects only one channel.
    """
    rows = quantize_rows(weight.permute(0, 2, 3, 1).flatten(1), "fp8")
    taps = rows.values.unflatten(1, (TAPS, -1)).transpose(0, 1).contiguous()
    return Weight(taps, rows.scale.flatten() / factor)


def to_e4m3(x: Tensor, factor: float) -> Tensor:
    """An image multiplied by the factor and rounded; values out of range are clipped."""
    return (x.float() * factor).clamp(-LARGEST["fp8"], LARGEST["fp8"]).to(E4M3)


def factor_for(largest: float) -> float:
    """The largest power of two by which numbers up to `largest` can be multiplied without clipping.

    A power of two, because multiplying by it and dividing again is exact.
    """
    return 2.0 ** floor(log2(LARGEST["fp8"] / max(largest, SMALLEST)))
