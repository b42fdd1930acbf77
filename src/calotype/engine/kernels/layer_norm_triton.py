"""The kernel of layer normalization: whole rows in registers, read once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.quantize import LARGEST, Kind, Quantized
from calotype.engine.kernels.quantize_triton import (
    empty,
    largest_of,
    store_fixed_scales,
    store_scaled,
    store_scales,
)
from calotype.engine.kernels.row_tiles import tile_of_rows


def launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    residual: Tensor | None = None,
    bias_of_residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The normalized rows, and the input rows of the norm."""
    x = x.contiguous()
    out = torch.empty_like(x)
    total = _run(x, weight, bias, eps, residual, bias_of_residual, out, None)
    return out, total


def launch_quantized(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    kind: Kind,
    residual: Tensor | None = None,
    bias_of_residual: Tensor | None = None,
    *,
    scale: float | None = None,
) -> tuple[Quantized, Tensor]:
    """With `scale` that is every row's."""
    x = x.contiguous()
    made = empty(x, x.shape[-1], kind)
    total = _run(
        x, weight, bias, eps, residual, bias_of_residual, made.values, made.scale, LARGEST[kind], scale
    )
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
    fixed: float | None = None,
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
            fixed or 1.0,
            FIXED=fixed is not None,
            ADD=residual is not None,
            EXTRA=residual is not None and extra is not None,
            LARGEST=largest,
            **tile.settings(),
        )
    return total


@triton.jit
def _read(x, residual, extra, total, rows, columns, taken, width, ADD: tl.constexpr, EXTRA: tl.constexpr):
    """Some columns of the rows that are normalised; sums are written as well."""
    places = rows[:, None] * width + columns[None, :]
    numbers = tl.load(x + places, mask=taken, other=0.0).to(tl.float32)
    if ADD:
        numbers += tl.load(residual + places, mask=taken, other=0.0).to(tl.float32)
        if EXTRA:
            numbers += tl.load(extra + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
        # The sum that is normalised is the sum that is handed on.
        rounded = numbers.to(total.dtype.element_ty)
        tl.store(total + places, rounded, mask=taken)
        numbers = rounded.to(tl.float32)
    return numbers


@triton.jit
def _scaled(away, deviation, weight, bias, columns, width):
    factor = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32)
    offset = tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)
    return away * deviation[:, None] * factor[None, :] + offset[None, :]


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
    fixed,
    FIXED: tl.constexpr,
    ADD: tl.constexpr,
    EXTRA: tl.constexpr,
    LARGEST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    REST: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    kept = rows < num_rows
    columns = tl.arange(0, COLUMNS)
    taken = kept[:, None] & (columns < width)[None, :]
    numbers = _read(x, residual, extra, total, rows, columns, taken, width, ADD, EXTRA)
    sums = tl.sum(numbers, 1)
    if REST > 0:
        others = COLUMNS + tl.arange(0, REST)
        more = _read(x, residual, extra, total, rows, others, kept[:, None], width, ADD, EXTRA)
        sums += tl.sum(more, 1)
    mean = sums / width
    away = tl.where((columns < width)[None, :], numbers - mean[:, None], 0.0)
    squares = tl.sum(away * away, 1)
    if REST > 0:
        more = more - mean[:, None]
        squares += tl.sum(more * more, 1)
    deviation = tl.rsqrt(squares / width + eps)
    y = _scaled(away, deviation, weight, bias, columns, width)
    places = rows[:, None] * width + columns[None, :]
    if REST > 0:
        z = _scaled(more, deviation, weight, bias, others, width)
        other_places = rows[:, None] * width + others[None, :]
    if LARGEST > 0.0:
        if FIXED:
            quantiser = store_fixed_scales(fixed, scale, rows, kept)
        else:
            largest = largest_of(y)
            if REST > 0:
                largest = tl.maximum(largest, largest_of(z))
            quantiser = store_scales(largest, scale, rows, kept, LARGEST)
        store_scaled(y, quantiser, out, places, taken, LARGEST)
        if REST > 0:
            store_scaled(z, quantiser, out, other_places, kept[:, None], LARGEST)
    else:
        tl.store(out + places, y.to(out.dtype.element_ty), mask=taken)
        if REST > 0:
            tl.store(out + other_places, z.to(out.dtype.element_ty), mask=kept[:, None])
