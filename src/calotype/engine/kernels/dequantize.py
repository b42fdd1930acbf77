"""Rescales an integer product to the units of its factors."""

from __future__ import annotations

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import runs_triton_on


def dequantize(
    whole: Tensor, rows: Tensor, columns: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """`whole` (M, N) times a scale for each row (M, 1) and for each column (N, 1), plus a bias (N)."""
    if runs_triton_on(whole.device):
        from calotype.engine.kernels import dequantize_triton  # noqa: PLC0415 - needs Triton

        return dequantize_triton.launch(whole, rows, columns, bias, dtype)
    return plain(whole, rows, columns, bias, dtype)


def plain(whole: Tensor, rows: Tensor, columns: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The same with torch's own operations."""
    scaled = whole.float() * rows * columns.T
    return (scaled if bias is None else scaled + bias.float()).to(dtype)
