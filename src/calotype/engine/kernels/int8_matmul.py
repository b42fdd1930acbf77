"""An int8 matrix product, rescaled to the units of its factors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.dequantize import dequantize
from calotype.engine.kernels.dispatch import capability, runs_gluon_on, runs_triton_on
from calotype.engine.kernels.int8_tile_config import Plan, plan_of
from calotype.engine.kernels.quantize import Quantized

_HOPPER = (9, 0)
_MIN_ROWS = 17
"""Minimum that torch's own product supports on a GPU."""


def int8_matmul(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """`x` (M, K) times the transpose of `weight` (N, K), plus a bias (N); widths are multiples of 16."""
    device = x.values.device
    # The kernels fetch tiles by Hopper's copy engine; older GPUs use torch's own product.
    if runs_triton_on(device) and capability(device) >= _HOPPER:
        plan = plan_of(len(x.values), len(weight.values), device) if runs_gluon_on(device) else None
        return planned(x, weight, bias, dtype, plan)
    return plain(x, weight, bias, dtype)


def planned(
    x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, plan: Plan | None
) -> Tensor:
    """The same with the kernel of the plan. Both kernels give bitwise equal results."""
    if plan is None:
        from calotype.engine.kernels import int8_matmul_triton  # noqa: PLC0415 - needs Triton

        return int8_matmul_triton.launch(x, weight, bias, dtype)
    from calotype.engine.kernels import int8_matmul_hopper  # noqa: PLC0415 - needs Triton

    return int8_matmul_hopper.launch(x, weight, bias, dtype, plan)


def plain(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The same with torch's own product, whose integers are scaled afterwards."""
    num_rows = len(x.values)
    values = x.values
    if values.is_cuda and num_rows < _MIN_ROWS:
        values = functional.pad(values, (0, 0, 0, _MIN_ROWS - num_rows))
    whole = torch._int_mm(values, weight.values.T)[:num_rows]
    return dequantize(whole, x.scale, weight.scale, bias, dtype)
