"""The kernel of layer normalisation: whole rows in registers, read once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.quantise import LARGEST, Kind, Quantised
from calotype.engine.kernels.quantise_triton import empty, store_quantised
from calotype.engine.kernels.rows_triton import tile_of_rows


def launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    residual: Tensor | None = None,
    bias_of_residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The normalised rows, and the rows that were normalised."""
    x = x.contiguous()
    out = torch.empty_like(x)
    total = _run(x, weight, bias, eps, residual, bias_of_residual, out, None)
    return out, total


def launch_quantised(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    kind: Kind,
    residual: Tensor | None = None,
    bias_of_residual: Tensor | None = None,
) -> tuple[Quantised, Tensor]:
    x = x.contiguous()
    made = empty(x, x.shape[-1], kind)
    total = _run(x, weight, bias, eps, residual, bias_of_residual, made.values, made.scale, LARGEST[kind])
    return made, total


def _run(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    residual: Tensor | None,
    extra: Tensor | None,
    out: Tensor,
    scale: Tensor | None,
    largest: float = 0.0,
) -> Tensor:
    width = x.shape[-1]
    num_rows = x.numel() // width
    tile = tile_of_rows(width)
    total = x
    if residual is not None:
        assert residual.shape == x.shape, (residual.shape, x.shape)
        residual = residual.contiguous()
        total = torch.empty_like(x)
    with torch.cuda.device_of(x):
        # A kernel takes a pointer for everything; what is switched off is never followed.
        _layer_norm[(triton.cdiv(num_rows, tile.rows),)](
            x,
            x if residual is None else residual,
            x if extra is None else extra.contiguous(),
            weight.contiguous(),
            bias.contiguous(),
            total,
            out,
            out if scale is None else scale,
            num_rows,
            width,
            eps,
            ADD=residual is not None,
            EXTRA=residual is not None and extra is not None,
            LARGEST=largest,
            **tile.settings(),
        )
    return total


@triton.jit(do_not_specialize=["num_rows"])
def _layer_norm(
    x,
    residual,
    extra,
    weight,
    bias,
    total,
    out,
    scale,
    num_rows,
    width,
    eps,
    ADD: tl.constexpr,
    EXTRA: tl.constexpr,
    LARGEST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    kept = rows < num_rows
    inside = columns < width
    taken = kept[:, None] & inside[None, :]
    places = rows[:, None] * width + columns[None, :]
    numbers = tl.load(x + places, mask=taken, other=0.0).to(tl.float32)
    if ADD:
        numbers += tl.load(residual + places, mask=taken, other=0.0).to(tl.float32)
        if EXTRA:
            numbers += tl.load(extra + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
        # The sum that is normalised is the sum that is handed on.
        rounded = numbers.to(total.dtype.element_ty)
        tl.store(total + places, rounded, mask=taken)
        numbers = rounded.to(tl.float32)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(numbers, 1) / width
    away = tl.where(inside[None, :], numbers - mean[:, None], 0.0)
    variance = tl.sum(away * away, 1) / width
    y = away * tl.rsqrt(variance + eps)[:, None] * factor[None, :] + offset[None, :]
    if LARGEST > 0.0:
        store_quantised(y, out, scale, rows, places, kept, taken, LARGEST)
    else:
        tl.store(out + places, y.to(out.dtype.element_ty), mask=taken)
