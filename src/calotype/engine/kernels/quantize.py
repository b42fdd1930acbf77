"""Quantizes rows to 8 bits, each row with its own scale: `row ≈ values * scale`."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import runs_triton

Kind = Literal["int8", "fp8"]

LARGEST = {"int8": 127.0, "fp8": 448.0}
VALUE_TYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
# A row of zeros needs a scale too; fp16 has no number this small.
SMALLEST = 1e-12


class Quantized(NamedTuple):
    """Values of the input's shape, and fp32 scales of its shape with a last dimension of one."""

    values: Tensor
    scale: Tensor


def quantize_rows(x: Tensor, kind: Kind) -> Quantized:
    """`x` in 8 bits, scaled row by row so that its largest value maps to the largest 8-bit value."""
    if runs_triton(x, row=x.shape[-1], fp8=kind == "fp8"):
        from calotype.engine.kernels import quantize_triton  # noqa: PLC0415 - needs Triton

        return quantize_triton.launch(x, kind)
    return plain(x, kind)


def plain(x: Tensor, kind: Kind, scale: float | None = None) -> Quantized:
    """The same with torch's own operations; with a scale for all rows, values beyond it are clipped."""
    x = x.float()
    if scale is not None:
        values = (x * (1 / scale)).clamp(-LARGEST[kind], LARGEST[kind])
        scales = torch.full((*x.shape[:-1], 1), scale, device=x.device)
        return Quantized((values.round() if kind == "int8" else values).to(VALUE_TYPES[kind]), scales)
    largest = x.abs().amax(-1, keepdim=True).clamp_min(SMALLEST)
    scaled = x * (LARGEST[kind] / largest)
    values = scaled.round() if kind == "int8" else scaled
    return Quantized(values.to(VALUE_TYPES[kind]), largest / LARGEST[kind])
