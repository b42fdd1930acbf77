"""GEGLU, the gate of a transformer's feed-forward layer: half of a row times the GELU of the other half."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels import quantize
from calotype.engine.kernels.dispatch import runs_triton
from calotype.engine.kernels.quantize import Kind, Quantized


def geglu(x: Tensor) -> Tensor:
    """`x` (…, 2d) to (…, d), with the exact GELU."""
    if runs_triton(x):
        from calotype.engine.kernels import geglu_triton  # noqa: PLC0415 - needs Triton

        return geglu_triton.launch(x)
    return plain(x)


def geglu_quantized(x: Tensor, kind: Kind) -> Quantized:
    """The same with 8-bit output, without prior rounding to the input's precision."""
    if runs_triton(x, row=x.shape[-1] // 2, fp8=kind == "fp8"):
        from calotype.engine.kernels import geglu_triton  # noqa: PLC0415 - needs Triton

        return geglu_triton.launch_quantized(x, kind)
    return quantize.plain(plain(x.float()), kind)


def plain(x: Tensor) -> Tensor:
    """The same with torch's own operations."""
    value, gate = x.chunk(2, -1)
    return value * functional.gelu(gate)
