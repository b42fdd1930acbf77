"""The kernels of GEGLU, alone and with fused quantization."""

from __future__ import annotations

from math import gcd

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.gelu_triton import below_and_density
from calotype.engine.kernels.quantize import LARGEST, Kind, Quantized
from calotype.engine.kernels.quantize_triton import empty, largest_of, store_scaled, store_scales
from calotype.engine.kernels.row_tiles import tile_of_rows

_TILE = 2048
_COLUMNS = 512


def launch(x: Tensor) -> Tensor:
    x = x.contiguous()
    width = _half(x)
    num_rows = x.numel() // x.shape[-1]
    out = torch.empty((*x.shape[:-1], width), dtype=x.dtype, device=x.device)
    # A power of two that divides the width leaves no lane idle.
    columns = gcd(width, _COLUMNS)
    if columns < 64:
        columns = min(_COLUMNS, triton.next_power_of_2(width))
    rows = _TILE // columns
    with torch.cuda.device_of(x):
        _geglu[triton.cdiv(num_rows, rows), triton.cdiv(width, columns)](
            x, out, num_rows, width, ROWS=rows, COLUMNS=columns, num_warps=4
        )
    return out


def launch_quantized(x: Tensor, kind: Kind) -> Quantized:
    x = x.contiguous()
    width = _half(x)
    num_rows = x.numel() // x.shape[-1]
    made = empty(x, width, kind)
    tile = tile_of_rows(width)
    with torch.cuda.device_of(x):
        _geglu_quantized[(triton.cdiv(num_rows, tile.rows),)](
            x, *made, num_rows, width, LARGEST=LARGEST[kind], **tile.settings()
        )
    return made


def _half(x: Tensor) -> int:
    assert x.shape[-1] % 2 == 0, x.shape
    return x.shape[-1] // 2


@triton.jit
def _gated(x, rows, columns, taken, width):
    places = rows[:, None] * (2 * width) + columns[None, :]
    value = tl.load(x + places, mask=taken, other=0.0).to(tl.float32)
    gate = tl.load(x + places + width, mask=taken, other=0.0).to(tl.float32)
    below, _ = below_and_density(gate)
    return value * gate * below


@triton.jit(do_not_specialize=["num_rows"])
def _geglu(x, out, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    taken = (rows < num_rows)[:, None] & (columns < width)[None, :]
    y = _gated(x, rows, columns, taken, width)
    tl.store(out + rows[:, None] * width + columns[None, :], y.to(out.dtype.element_ty), mask=taken)


@triton.jit(do_not_specialize=["num_rows"])
def _geglu_quantized(
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
    y = _gated(x, rows, columns, taken, width)
    largest = largest_of(y)
    if REST > 0:
        others = COLUMNS + tl.arange(0, REST)
        z = _gated(x, rows, others, kept[:, None], width)
        largest = tl.maximum(largest, largest_of(z))
    factor = store_scales(largest, scale, rows, kept, LARGEST)
    store_scaled(y, factor, values, rows[:, None] * width + columns[None, :], taken, LARGEST)
    if REST > 0:
        store_scaled(z, factor, values, rows[:, None] * width + others[None, :], kept[:, None], LARGEST)
