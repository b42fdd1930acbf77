"""A sum of two tensors, optionally with a bias per channel."""

from __future__ import annotations

from torch import Tensor

from calotype.engine.kernels.dispatch import runs_triton


def add(x: Tensor, addend: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x + addend`, and `bias` along the last dimension, in one pass over memory."""
    if bias is not None and runs_triton(x):
        from calotype.engine.kernels import add_triton  # noqa: PLC0415 - needs Triton

        return add_triton.launch(x, addend, bias)
    return plain(x, addend, bias)


def plain(x: Tensor, addend: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same with torch's own operations."""
    total = x + addend
    return total if bias is None else total + bias
