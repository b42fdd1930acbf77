"""The kernel that quantizes rows, and its final step, which other kernels share."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.quantize import LARGEST, SMALLEST, VALUE_TYPES, Kind, Quantized
from calotype.engine.kernels.row_tiles import tile_of_rows

_SMALLEST = tl.constexpr(SMALLEST)
# Adding and subtracting it rounds to the nearest integer, ties to even.
_ROUNDER = tl.constexpr(1.5 * 2**23)


def launch(x: Tensor, kind: Kind) -> Quantized:
    x = x.contiguous()
    width = x.shape[-1]
    num_rows = x.numel() // width
    made = empty(x, width, kind)
    tile = tile_of_rows(width)
    with torch.cuda.device_of(x):
        _quantize[(triton.cdiv(num_rows, tile.rows),)](
            x, *made, num_rows, width, LARGEST=LARGEST[kind], **tile.settings()
        )
    return made


def empty(x: Tensor, width: int, kind: Kind) -> Quantized:
    """Room for rows of `width`, as many as `x` has."""
    values = torch.empty((*x.shape[:-1], width), dtype=VALUE_TYPES[kind], device=x.device)
    return Quantized(values, torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device))


@triton.jit
def largest_of(y):
    """Of each row's numbers, which are zero where there are none."""
    return tl.max(tl.abs(y), 1)


@triton.jit
def store_scales(largest, scale, rows, kept, LARGEST: tl.constexpr):
    """Write the rows' scales; what their numbers are to be multiplied with."""
    largest = tl.maximum(largest, _SMALLEST)
    limit = tl.full(largest.shape, LARGEST, tl.float32)
    tl.store(scale + rows, tl.div_rn(largest, limit), mask=kept)
    return tl.div_rn(limit, largest)


@triton.jit
def store_fixed_scales(fixed, scale, rows, kept):
    """The same with a scale that is known before."""
    scales = tl.zeros(rows.shape, tl.float32) + fixed
    tl.store(scale + rows, scales, mask=kept)
    return tl.div_rn(tl.full(rows.shape, 1.0, tl.float32), scales)


@triton.jit
def store_scaled(y, factor, values, places, taken, LARGEST: tl.constexpr):
    """Write a part of the rows in eight bits."""
    # A scale that was known before may be too small.
    scaled = tl.minimum(tl.maximum(y * factor[:, None], -LARGEST), LARGEST)
    if LARGEST == 127.0:
        scaled = (scaled + _ROUNDER) - _ROUNDER
    tl.store(values + places, scaled.to(values.dtype.element_ty), mask=taken)


@triton.jit(do_not_specialize=["num_rows"])
def _quantize(
    x,
    values,
    scale,
    num_rows,
    width,
    LARGEST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    REST: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    kept = rows < num_rows
    columns = tl.arange(0, COLUMNS)
    taken = kept[:, None] & (columns < width)[None, :]
    places = rows[:, None] * width + columns[None, :]
    y = tl.load(x + places, mask=taken, other=0.0).to(tl.float32)
    largest = largest_of(y)
    if REST > 0:
        more = rows[:, None] * width + (COLUMNS + tl.arange(0, REST))[None, :]
        z = tl.load(x + more, mask=kept[:, None], other=0.0).to(tl.float32)
        largest = tl.maximum(largest, largest_of(z))
    factor = store_scales(largest, scale, rows, kept, LARGEST)
    store_scaled(y, factor, values, places, taken, LARGEST)
    if REST > 0:
        store_scaled(z, factor, values, more, kept[:, None], LARGEST)
