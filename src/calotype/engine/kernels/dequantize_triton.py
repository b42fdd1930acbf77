"""The kernel that rescales an integer product, in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS = 8, 512


def launch(whole: Tensor, rows: Tensor, columns: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    whole = whole.contiguous()
    num_rows, width = whole.shape
    out = torch.empty_like(whole, dtype=dtype)
    grid = (triton.cdiv(num_rows, _ROWS), triton.cdiv(width, _COLUMNS))
    with torch.cuda.device_of(whole):
        # Kernels need a pointer for every input; those of disabled inputs are never dereferenced.
        _rescale[grid](
            whole,
            rows.contiguous(),
            columns.contiguous(),
            columns if bias is None else bias.contiguous(),
            out,
            num_rows,
            width,
            BIAS=bias is not None,
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            num_warps=4,
        )
    return out


@triton.jit(do_not_specialize=["num_rows"])
def _rescale(
    whole,
    row_scales,
    column_scales,
    bias,
    out,
    num_rows,
    width,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    kept, inside = rows < num_rows, columns < width
    taken = kept[:, None] & inside[None, :]
    places = rows[:, None] * width + columns[None, :]
    numbers = tl.load(whole + places, mask=taken, other=0).to(tl.float32)
    numbers *= tl.load(row_scales + rows, mask=kept, other=0.0)[:, None]
    numbers *= tl.load(column_scales + columns, mask=inside, other=0.0)[None, :]
    if BIAS:
        numbers += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(out + places, numbers.to(out.dtype.element_ty), mask=taken)
