"""Layer normalization over the last dimension, optionally of a sum, and optionally with 8-bit output."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels import quantize
from calotype.engine.kernels.dispatch import runs_triton
from calotype.engine.kernels.quantize import Kind, Quantized


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    if _runs_triton(x):
        from calotype.engine.kernels import layer_norm_triton  # noqa: PLC0415 - needs Triton

        return layer_norm_triton.launch(x, weight, bias, eps)[0]
    return plain(x, weight, bias, eps)


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    *,
    bias_of_residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The norm of `x + residual`, and the sum itself; a bias vector joins the sum if given."""
    if _runs_triton(x):
        from calotype.engine.kernels import layer_norm_triton  # noqa: PLC0415 - needs Triton

        return layer_norm_triton.launch(x, weight, bias, eps, residual, bias_of_residual)
    total = plain_sum(x, residual, bias_of_residual)
    return plain(total, weight, bias, eps), total


def layer_norm_quantized(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, kind: Kind, *, scale: float | None = None
) -> Quantized:
    """The norm in 8 bits, without prior rounding to the input's precision.

    With `scale` all rows use it, and values beyond it are clipped.
    """
    if _runs_triton(x, kind):
        from calotype.engine.kernels import layer_norm_triton  # noqa: PLC0415 - needs Triton

        return layer_norm_triton.launch_quantized(x, weight, bias, eps, kind, scale=scale)[0]
    return quantize.plain(plain(x.float(), weight, bias, eps), kind, scale)


def add_layer_norm_quantized(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    kind: Kind,
    *,
    bias_of_residual: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Quantized, Tensor]:
    """The norm of `x + residual` in 8 bits, and the sum itself, not quantized."""
    if _runs_triton(x, kind):
        from calotype.engine.kernels import layer_norm_triton  # noqa: PLC0415 - needs Triton

        return layer_norm_triton.launch_quantized(
            x, weight, bias, eps, kind, residual, bias_of_residual, scale=scale
        )
    total = plain_sum(x, residual, bias_of_residual)
    return quantize.plain(plain(total.float(), weight, bias, eps), kind, scale), total


def plain(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The same with torch's own operations."""
    return functional.layer_norm(x, x.shape[-1:], weight.to(x.dtype), bias.to(x.dtype), eps)


def plain_sum(x: Tensor, residual: Tensor, bias_of_residual: Tensor | None) -> Tensor:
    total = x + residual
    return total if bias_of_residual is None else total + bias_of_residual


def _runs_triton(x: Tensor, kind: Kind | None = None) -> bool:
    return runs_triton(x, row=x.shape[-1], fp8=kind == "fp8")
