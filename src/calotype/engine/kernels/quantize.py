"""Rows of numbers in eight bits, each row with a scale of its own: `row ≈ values * scale`.

Knows nothing of what is multiplied with them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import runs_triton

Kind = Literal["int8", "fp8"]

LARGEST = {"int8": 127.0, "fp8": 448.0}
VALUE_TYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
# A row of zeros needs a scale too; half precision has no number this small.
SMALLEST = 1e-12


class Quantized(NamedTuple):
    """Values of the input's shape, and fp32 scales of its shape with a last dimension of one."""

    values: Tensor
    scale: Tensor


def quantize_rows(x: Tensor, kind: Kind) -> Quantized:
    """`x` in eight bits, scaled row by row so that its largest number is the largest there is."""
    if runs_triton(x, row=x.shape[-1], fp8=kind == "fp8"):
        from calotype.engine.kernels import quantize_triton  # noqa: PLC0415 - needs Triton

        return quantize_triton.launch(x, kind)
    return plain(x, kind)


def plain(x: Tensor, kind: Kind, scale: float | None = None) -> Quantized:
    """The same in torch's own operations; with a scale for all rows, numbers beyond it are cut off."""
    x = x.float()
    if scale is not None:
        values = (x * (1 / scale)).clamp(-LARGEST[kind], LARGEST[kind])
        scales = torch.full((*x.shape[:-1], 1), scale, device=x.device)
        return Quantized((values.round() if kind == "int8" else values).to(VALUE_TYPES[kind]), scales)
    largest = x.abs().amax(-1, keepdim=True).clamp_min(SMALLEST)
    scaled = x * (LARGEST[kind] / largest)
    values = scaled.round() if kind == "int8" else scaled
    return Quantized(values.to(VALUE_TYPES[kind]), largest / LARGEST[kind])
