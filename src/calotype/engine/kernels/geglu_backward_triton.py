"""The kernel of GEGLU's gradient: a program processes a few columns, a tile of rows at a time.

Sums are kept as a tile until the last one, so threads exchange data only at the end.
"""

from __future__ import annotations

from math import gcd

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.gelu_triton import below_and_density

# Sixteen bytes of bf16 for each of 128 threads.
_TILE = 1024
_COLUMNS = 128
# As many as an H200 can hold at once with their registers, so that all start and end together.
_PROGRAMS = 132 * 6


def launch(gradient: Tensor, projected: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    assert projected.shape[-1] == bias.numel() == 2 * gradient.shape[-1], (gradient.shape, projected.shape)
    gradient, projected, bias = gradient.contiguous(), projected.contiguous(), bias.contiguous()
    width = gradient.shape[-1]
    num_rows = gradient.numel() // width
    # A power of two that divides the width leaves no lane idle.
    columns = gcd(width, _COLUMNS)
    if columns < 64:
        columns = min(_COLUMNS, triton.next_power_of_2(width))
    rows = _TILE // columns
    blocks = triton.cdiv(width, columns)
    parts = max(1, min(triton.cdiv(num_rows, rows), _PROGRAMS // blocks))
    out = torch.empty_like(projected)
    sums = torch.empty((parts, 2 * width), dtype=torch.float32, device=projected.device)
    with torch.cuda.device_of(projected):
        _geglu_backward[blocks, parts](
            gradient, projected, bias, out, sums, num_rows, width, ROWS=rows, COLUMNS=columns, num_warps=4
        )
    return out, sums.sum(0)


@triton.jit(do_not_specialize=["num_rows"])
def _geglu_backward(
    gradient, projected, bias, out, sums, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    rows = tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    value_bias = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
    gate_bias = tl.load(bias + width + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
    narrow = rows[:, None] * width + columns[None, :]
    wide = rows[:, None] * (2 * width) + columns[None, :]
    value_sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    gate_sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(tl.program_id(1) * ROWS, num_rows, tl.num_programs(1) * ROWS):
        # Large batches have more than 2^31 numbers.
        start = tl.cast(first, tl.int64) * width
        # Where nothing is, the gradient is zero, and so is all that follows from it.
        taken = (first + rows < num_rows)[:, None] & inside[None, :]
        outer = tl.load(gradient + start + narrow, mask=taken, other=0.0).to(tl.float32)
        value = tl.load(projected + 2 * start + wide, mask=taken, other=0.0).to(tl.float32) + value_bias
        gate = tl.load(projected + 2 * start + width + wide, mask=taken, other=0.0).to(tl.float32) + gate_bias
        below, density = below_and_density(gate)
        of_value = outer * gate * below
        of_gate = outer * value * (below + gate * density)
        value_sums += of_value
        gate_sums += of_gate
        tl.store(out + 2 * start + wide, of_value.to(out.dtype.element_ty), mask=taken)
        tl.store(out + 2 * start + width + wide, of_gate.to(out.dtype.element_ty), mask=taken)
    place = sums + tl.program_id(1) * (2 * width) + columns
    tl.store(place, tl.sum(value_sums, 0), mask=inside)
    tl.store(place + width, tl.sum(gate_sums, 0), mask=inside)
