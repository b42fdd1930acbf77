"""The int8 product kernel for Hopper, warp-specialized: one warp fetches, teams (warpgroups) multiply.

Triton's language waits for the tensor cores after every step of an integer product. Gluon, its lower level,
makes waits explicit: here one step always runs while the next is issued. With two teams one multiplies while
the other scales and writes. Gluon's interface is not stable: this is for Triton 3.6 and 3.7. GPUs before and
after Hopper have other instructions. Sums are exact: any plan gives the same results.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from calotype.engine.kernels import int8_matmul_triton
from calotype.engine.kernels.dispatch import num_multiprocessors
from calotype.engine.kernels.int8_tile_config import Plan
from calotype.engine.kernels.quantize import Quantized

_TYPES = {
    torch.int8: gl.int8,
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float32: gl.float32,
}
_place = gluon.jit(int8_matmul_triton.place.fn)


def launch(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, plan: Plan) -> Tensor:
    (num_rows, depth), width = x.values.shape, len(weight.values)
    out = torch.empty((num_rows, width), dtype=dtype, device=x.values.device)
    num_tiles = triton.cdiv(num_rows, plan.rows) * triton.cdiv(width, plan.columns)
    num_programs = min(num_tiles, num_multiprocessors(out.device))
    with torch.cuda.device_of(out):
        # A kernel takes a pointer for everything; what is switched off is never followed.
        _product_specialized[(num_programs,)](
            _tiles_of(x.values.contiguous(), [plan.rows, plan.depth]),
            _tiles_of(weight.values.contiguous(), [plan.columns, plan.depth]),
            _tiles_of(out, [plan.rows, plan.columns // plan.parts]),
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
            STAGES=plan.stages,
            TEAMS=plan.teams,
            NEIGHBOURS=int8_matmul_triton.NEIGHBOURS,
            num_warps=plan.warps // plan.teams,
        )
    return out


def _tiles_of(x: Tensor, shape: list[int]) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(
        x, shape, gl.NVMMASharedLayout.get_default_for(shape, _TYPES[x.dtype])
    )


@gluon.jit(do_not_specialize=["num_rows"])
def _product_specialized(
    x,
    weight,
    out,
    row_scales,
    column_scales,
    bias,
    num_rows,
    width,
    depth,
    BIAS: gl.constexpr,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    PARTS: gl.constexpr,
    STAGES: gl.constexpr,
    TEAMS: gl.constexpr,
    NEIGHBOURS: gl.constexpr,
):
    tiles = (
        gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, DEPTH], x.layout),
        gl.allocate_shared_memory(weight.dtype, [STAGES, COLUMNS, DEPTH], weight.layout),
    )
    outgoing = gl.allocate_shared_memory(out.dtype, [TEAMS, ROWS, COLUMNS // PARTS], out.layout)
    # A place in the ring is full once both tiles have come, and free once a team has multiplied them.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    # A team has its turn once the other has asked for all its products. Only so is a full place full with its
    # own tiles: a barrier knows no more than the last bit of how often it was.
    turn = gl.allocate_shared_memory(gl.int64, [TEAMS, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    for team in gl.static_range(TEAMS):
        mbarrier.init(turn.index(team), count=1)
    fence_async_shared()
    extent = (gl.cdiv(num_rows, ROWS), gl.cdiv(width, COLUMNS), gl.cdiv(depth, DEPTH), num_rows, width)
    factors, signals = (row_scales, column_scales, bias), (full, free, turn)
    # 168 registers a thread at the start; those that multiply get what the fetching warp's four do not need.
    if TEAMS == 1:
        gl.warp_specialize(
            [
                (_multiply, (0, out, factors, tiles, outgoing, signals, extent, NEIGHBOURS, BIAS, PARTS)),
                (_fetch, (x, weight, tiles, signals, extent, NEIGHBOURS)),
            ],
            [1],
            [40],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (0, out, factors, tiles, outgoing, signals, extent, NEIGHBOURS, BIAS, PARTS)),
                (_multiply, (1, out, factors, tiles, outgoing, signals, extent, NEIGHBOURS, BIAS, PARTS)),
                (_fetch, (x, weight, tiles, signals, extent, NEIGHBOURS)),
            ],
            [4, 1],
            [232, 40],
        )


@gluon.jit
def _fetch(x, weight, tiles, signals, extent, NEIGHBOURS: gl.constexpr):
    """Asks for the tiles of every step of every turn as places get free; does not wait for them to come."""
    x_tiles, weight_tiles = tiles
    full, free, _ = signals
    down, across, steps, _, _ = extent
    stages: gl.constexpr = x_tiles.shape[0]
    rows: gl.constexpr = x_tiles.shape[1]
    columns: gl.constexpr = weight_tiles.shape[1]
    depth: gl.constexpr = x_tiles.shape[2]
    count = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        below, right = _place(tile, down, across, NEIGHBOURS)
        for step in range(steps):
            stage = count % stages
            # The first time round all places are free: the phase before the first counts as over.
            mbarrier.wait(free.index(stage), (count // stages + 1) % 2)
            arrived = full.index(stage)
            mbarrier.expect(arrived, (rows + columns) * depth)
            tma.async_copy_global_to_shared(x, [below * rows, step * depth], arrived, x_tiles.index(stage))
            tma.async_copy_global_to_shared(
                weight, [right * columns, step * depth], arrived, weight_tiles.index(stage)
            )
            count += 1


@gluon.jit
def _multiply(
    team: gl.constexpr,
    out,
    factors,
    tiles,
    outgoing,
    signals,
    extent,
    NEIGHBOURS: gl.constexpr,
    BIAS: gl.constexpr,
    PARTS: gl.constexpr,
):
    """Every turn of one team. Tiles are dealt in turn, so teams find their steps in the ring by counting."""
    x_tiles, weight_tiles = tiles
    full, free, turn = signals
    down, across, steps, num_rows, width = extent
    stages: gl.constexpr = x_tiles.shape[0]
    rows: gl.constexpr = x_tiles.shape[1]
    columns: gl.constexpr = weight_tiles.shape[1]
    teams: gl.constexpr = outgoing.shape[0]
    # 128 columns at a time are the most that Triton takes of whole numbers.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, 128, 32])
    count, turns = team * steps, 0
    first = gl.program_id(0) + team * gl.num_programs(0)
    for tile in range(first, down * across, teams * gl.num_programs(0)):
        below, right = _place(tile, down, across, NEIGHBOURS)
        places = below * rows + gl.arange(0, rows, layout=gl.SliceLayout(1, layout))
        row_scale = gl.load(factors[0] + places, mask=places < num_rows, other=0.0)
        sums = gl.zeros([rows, columns], gl.int32, layout)
        if teams > 1:
            # The first team's first turn comes by itself: the phase before the first counts as over.
            mbarrier.wait(turn.index(team), (turns + team + 1) % 2)
            turns += 1
        for step in range(steps):
            stage = count % stages
            mbarrier.wait(full.index(stage), count // stages % 2)
            sums = warpgroup_mma(
                x_tiles.index(stage), weight_tiles.index(stage).permute([1, 0]), sums, is_async=True
            )
            # Leaves this step under way; the one before is done, and its place free.
            sums = warpgroup_mma_wait(1, deps=[sums])
            mbarrier.arrive(free.index((count + stages - 1) % stages), pred=step > 0)
            count += 1
        if teams > 1:
            mbarrier.arrive(turn.index(1 - team))
        sums = warpgroup_mma_wait(0, deps=[sums])
        mbarrier.arrive(free.index((count + stages - 1) % stages))
        count += (teams - 1) * steps
        _write(
            out,
            outgoing.index(team),
            sums,
            row_scale,
            factors[1],
            factors[2],
            below * rows,
            right * columns,
            width,
            BIAS,
            PARTS,
        )
    tma.store_wait(0)


@gluon.jit
def _write(
    out,
    outgoing,
    sums,
    row_scale,
    column_scales,
    bias,
    top,
    left,
    width,
    BIAS: gl.constexpr,
    PARTS: gl.constexpr,
):
    """Scales as the kernel of one tile does, to the bit; halves what is to be written in several parts."""
    if PARTS > 1:
        half: gl.constexpr = sums.shape[1] // 2
        first, second = sums.reshape([sums.shape[0], 2, half]).permute([0, 2, 1]).split()
        _write(out, outgoing, first, row_scale, column_scales, bias, top, left, width, BIAS, PARTS // 2)
        _write(
            out, outgoing, second, row_scale, column_scales, bias, top, left + half, width, BIAS, PARTS // 2
        )
    else:
        wide: gl.constexpr = sums.shape[1]
        layout: gl.constexpr = gl.NVMMADistributedLayout(
            [3, 0], [gl.num_warps(), 1], [16, min(wide, 128), 32]
        )
        columns = left + gl.arange(0, wide, layout=gl.SliceLayout(0, layout))
        numbers = gl.convert_layout(sums, layout, assert_trivial=True).to(gl.float32)
        numbers *= gl.convert_layout(row_scale, gl.SliceLayout(1, layout), assert_trivial=True)[:, None]
        numbers *= gl.load(column_scales + columns, mask=columns < width, other=0.0)[None, :]
        if BIAS:
            numbers += gl.load(bias + columns, mask=columns < width, other=0.0).to(gl.float32)[None, :]
        # The part before may still be read from where this one is to wait.
        tma.store_wait(0)
        outgoing.store(numbers.to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [top, left], outgoing)
