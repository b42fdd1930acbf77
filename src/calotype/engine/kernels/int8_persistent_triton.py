"""The kernel of a product in eight bits whose programs walk over tiles: one fetches the next while it writes.

As many programs as a GPU runs at once, so nothing is set up anew for a tile. Triton 3.6 and 3.7 wait for the
tensor cores behind every step of whole numbers (behind every other one of fractions), so steps should be few
and deep, or two programs share a multiprocessor. Sums are exact: any plan gives the same numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from calotype.engine.kernels.int8_plans import Plan, num_multiprocessors
from calotype.engine.kernels.int8_product_triton import NEIGHBOURS, place
from calotype.engine.kernels.quantise import Quantised


def launch(x: Quantised, weight: Quantised, bias: Tensor | None, dtype: torch.dtype, plan: Plan) -> Tensor:
    (num_rows, depth), width = x.values.shape, len(weight.values)
    out = torch.empty((num_rows, width), dtype=dtype, device=x.values.device)
    num_tiles = triton.cdiv(num_rows, plan.rows) * triton.cdiv(width, plan.columns)
    num_programs = min(num_tiles, plan.programs * num_multiprocessors(out.device))
    with torch.cuda.device_of(out):
        # A kernel takes a pointer for everything; what is switched off is never followed.
        _product_persistent[(num_programs,)](
            TensorDescriptor.from_tensor(x.values.contiguous(), [plan.rows, plan.depth]),
            TensorDescriptor.from_tensor(weight.values.contiguous(), [plan.columns, plan.depth]),
            TensorDescriptor.from_tensor(out, [plan.rows, plan.columns // plan.parts]),
            x.scale.contiguous(),
            weight.scale.contiguous(),
            weight.scale if bias is None else bias.contiguous(),
            num_rows,
            width,
            depth,
            BIAS=bias is not None,
            ROWS=plan.rows,
            COLUMNS=plan.columns,
            DEPTH=plan.depth,
            PARTS=plan.parts,
            FLAT=plan.flat,
            NEIGHBOURS=NEIGHBOURS,
            num_warps=plan.warps,
            num_stages=plan.stages,
        )
    return out


@triton.jit(do_not_specialize=["num_rows"])
def _product_persistent(
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
    PARTS: tl.constexpr,
    FLAT: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
):
    down, across = tl.cdiv(num_rows, ROWS), tl.cdiv(width, COLUMNS)
    steps = tl.cdiv(depth, DEPTH)
    tl.assume(steps > 0)
    written = tl.program_id(0)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0), flatten=FLAT):
        below, right = place(tile, down, across, NEIGHBOURS)
        sums = tl.zeros((ROWS, COLUMNS), tl.int32)
        for step in range(steps):
            sums = tl.dot(
                x.load([below * ROWS, step * DEPTH]),
                weight.load([right * COLUMNS, step * DEPTH]).T,
                sums,
                out_dtype=tl.int32,
            )
        # Counted apart from the tile that is fetched, which the compiler moves ahead of the one written.
        below, right = place(written, down, across, NEIGHBOURS)
        written += tl.num_programs(0)
        rows = below * ROWS + tl.arange(0, ROWS)
        row_scale = tl.load(row_scales + rows, mask=rows < num_rows, other=0.0)
        _write(
            out,
            sums,
            row_scale,
            column_scales,
            bias,
            below * ROWS,
            right * COLUMNS,
            width,
            BIAS,
            PARTS,
        )


@triton.jit
def _write(
    out, sums, row_scale, column_scales, bias, top, left, width, BIAS: tl.constexpr, PARTS: tl.constexpr
):
    """Scales as the kernel of one tile does, to the bit; halves what is to be written in several parts."""
    if PARTS > 1:
        half: tl.constexpr = sums.shape[1] // 2
        first, second = sums.reshape(sums.shape[0], 2, half).permute(0, 2, 1).split()
        _write(out, first, row_scale, column_scales, bias, top, left, width, BIAS, PARTS // 2)
        _write(out, second, row_scale, column_scales, bias, top, left + half, width, BIAS, PARTS // 2)
    else:
        columns = left + tl.arange(0, sums.shape[1])
        numbers = sums.to(tl.float32)
        numbers *= row_scale[:, None]
        numbers *= tl.load(column_scales + columns, mask=columns < width, other=0.0)[None, :]
        if BIAS:
            numbers += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
        out.store([top, left], numbers.to(out.dtype))
