"""The kernel of an int8 product with fused rescaling: int32 sums never leave the multiprocessor.

torch's own product writes four bytes per sum, which another kernel has to read and scale: in SDXL's
evaluation of eight images that took 149 ms of 271 on one H200. Integer sums are exact, so tiles may depend on
the number of rows: an image is bitwise the same alone and in any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from calotype.engine.kernels.quantize import Quantized

_MULTIPROCESSORS = 132


@dataclass(frozen=True)
class _Tile:
    rows: int
    columns: int
    warps: int
    stages: int


_WIDE = _Tile(128, 256, 8, 3)
_TALL = _Tile(256, 128, 8, 3)
_SMALL = _Tile(128, 128, 4, 4)
_DEPTH = 128
NEIGHBOURS = 8
"""Tiles one below the other that are made one after the other: they share what they read."""


def _tile(num_rows: int, width: int, depth: int) -> _Tile:
    """What was fastest on one H200 over the products of SDXL."""
    if triton.cdiv(num_rows, _WIDE.rows) * triton.cdiv(width, _WIDE.columns) < _MULTIPROCESSORS:
        return _SMALL
    return _WIDE if width % _WIDE.columns == 0 and width >= depth else _TALL


def launch(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    (num_rows, depth), width = x.values.shape, len(weight.values)
    out = torch.empty((num_rows, width), dtype=dtype, device=x.values.device)
    tile = _tile(num_rows, width, depth)
    num_tiles = triton.cdiv(num_rows, tile.rows) * triton.cdiv(width, tile.columns)
    with torch.cuda.device_of(out):
        # A kernel takes a pointer for everything; what is switched off is never followed.
        _product[(num_tiles,)](
            TensorDescriptor.from_tensor(x.values.contiguous(), [tile.rows, _DEPTH]),
            TensorDescriptor.from_tensor(weight.values.contiguous(), [tile.columns, _DEPTH]),
            TensorDescriptor.from_tensor(out, [tile.rows, tile.columns]),
            x.scale.contiguous(),
            weight.scale.contiguous(),
            weight.scale if bias is None else bias.contiguous(),
            num_rows,
            width,
            depth,
            BIAS=bias is not None,
            ROWS=tile.rows,
            COLUMNS=tile.columns,
            DEPTH=_DEPTH,
            NEIGHBOURS=NEIGHBOURS,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


@triton.jit(do_not_specialize=["num_rows"])
def _product(
    x,
    weight,
    out,
    row_scales,
    column_scales,
    bias,
    num_rows,
    width,
    depth,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
):
    down, across = tl.cdiv(num_rows, ROWS), tl.cdiv(width, COLUMNS)
    below, right = place(tl.program_id(0), down, across, NEIGHBOURS)
    top, left = below * ROWS, right * COLUMNS
    sums = tl.zeros((ROWS, COLUMNS), tl.int32)
    for step in range(tl.cdiv(depth, DEPTH)):
        sums = tl.dot(
            x.load([top, step * DEPTH]), weight.load([left, step * DEPTH]).T, sums, out_dtype=tl.int32
        )
    rows, columns = top + tl.arange(0, ROWS), left + tl.arange(0, COLUMNS)
    numbers = sums.to(tl.float32)
    numbers *= tl.load(row_scales + rows, mask=rows < num_rows, other=0.0)[:, None]
    numbers *= tl.load(column_scales + columns, mask=columns < width, other=0.0)[None, :]
    if BIAS:
        numbers += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    out.store([top, left], numbers.to(out.dtype))


@triton.jit
def place(tile, down, across, NEIGHBOURS: tl.constexpr):
    """Which tile from above and from the left comes at that turn."""
    first = tile // (NEIGHBOURS * across) * NEIGHBOURS
    neighbours = tl.minimum(down - first, NEIGHBOURS)
    within = tile % (NEIGHBOURS * across)
    return first + within % neighbours, within // neighbours
