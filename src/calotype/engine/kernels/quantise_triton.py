"""The kernel that quantises rows, and the piece of it that other kernels end with."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.quantise import LARGEST, SMALLEST, VALUE_TYPES, Kind, Quantised
from calotype.engine.kernels.rows_triton import tile_of_rows

_SMALLEST = tl.constexpr(SMALLEST)
# Added to a number and taken away again, it leaves the nearest whole one, ties to even.
_ROUNDER = tl.constexpr(1.5 * 2**23)


def launch(x: Tensor, kind: Kind) -> Quantised:
    x = x.contiguous()
    width = x.shape[-1]
    num_rows = x.numel() // width
    made = empty(x, width, kind)
    tile = tile_of_rows(width)
    with torch.cuda.device_of(x):
        _quantise[(triton.cdiv(num_rows, tile.rows),)](
            x, *made, num_rows, width, LARGEST=LARGEST[kind], **tile.settings()
        )
    return made


def empty(x: Tensor, width: int, kind: Kind) -> Quantised:
    """Room for rows of `width`, as many as `x` has."""
    values = torch.empty((*x.shape[:-1], width), dtype=VALUE_TYPES[kind], device=x.device)
    return Quantised(values, torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device))


@triton.jit
def store_quantised(y, values, scale, rows, places, kept, taken, LARGEST: tl.constexpr):
    """Write rows of fp32 numbers, zero where not `taken`, and their scales."""
    largest = tl.maximum(tl.max(tl.abs(y), 1), _SMALLEST)
    limit = tl.full(largest.shape, LARGEST, tl.float32)
    scaled = y * tl.div_rn(limit, largest)[:, None]
    if LARGEST == 127.0:
        scaled = (scaled + _ROUNDER) - _ROUNDER
    tl.store(values + places, scaled.to(values.dtype.element_ty), mask=taken)
    tl.store(scale + rows, tl.div_rn(largest, limit), mask=kept)


@triton.jit(do_not_specialize=["num_rows"])
def _quantise(
    x, values, scale, num_rows, width, LARGEST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    kept = rows < num_rows
    taken = kept[:, None] & (columns < width)[None, :]
    places = rows[:, None] * width + columns[None, :]
    y = tl.load(x + places, mask=taken, other=0.0).to(tl.float32)
    store_quantised(y, values, scale, rows, places, kept, taken, LARGEST)
