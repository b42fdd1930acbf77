"""The self-attention kernel for Hopper, warp-specialized: one warp fetches, teams (warpgroups) compute.

Each team has its own queries and reads the keys and values that all teams share. It issues the product for
the next scores and the product with the last values together, and computes the softmax of these scores while
the latter runs: the tensor cores stay busy, with its products and the other teams'. Softmax and sums are in
fp32; probabilities are rounded once, for the product with the values, as in all kernels of this kind. Gluon's
interface is not stable: this is for Triton 3.6 and 3.7.
"""

from __future__ import annotations

import math

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

from calotype.engine.kernels.attention import Plan
from calotype.engine.kernels.dispatch import num_multiprocessors

_TYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


def launch(query: Tensor, key: Tensor, value: Tensor, plan: Plan) -> Tensor:
    """All are (rows, heads, places, channels), and so is the result, where heads lie inside places."""
    rows, heads, places, channels = query.shape
    # Queries may end inside a tile; keys that are read as zeros would have a share.
    assert key.shape[2] % plan.keys == 0
    out = torch.empty_permuted(query.shape, (0, 2, 1, 3), dtype=query.dtype, device=query.device)
    down = triton.cdiv(places, plan.teams * plan.queries)
    num_tiles = rows * heads * down
    first, second = plan.columns(channels)
    # Columns beyond a head's channels are read as zeros, and not written.
    sizes = ((query, plan.queries), (key, plan.keys), (value, plan.keys), (out, plan.queries))
    # A kernel takes a descriptor for everything; the second columns of what is not split are never fetched.
    tiles = [_tiles_of(x, size, width) for x, size in sizes for width in (first, second or first)]
    with torch.cuda.device_of(out):
        _attention[(min(num_tiles, num_multiprocessors(out.device)),)](
            *tiles,
            num_tiles,
            heads,
            down,
            key.shape[2] // plan.keys,
            math.log2(math.e) / math.sqrt(channels),
            QUERIES=plan.queries,
            KEYS=plan.keys,
            FIRST=first,
            SECOND=second,
            STAGES=plan.stages,
            TEAMS=plan.teams,
            TURNS=plan.turns,
            num_warps=4,
        )
    return out


def _tiles_of(x: Tensor, size: int, width: int) -> TensorDescriptor:
    """As they lie in memory, where heads are inside places: every stride is a multiple of the next."""
    shape = [1, size, 1, width]
    return TensorDescriptor.from_tensor(
        x.transpose(1, 2), shape, gl.NVMMASharedLayout.get_default_for(shape, _TYPES[x.dtype])
    )


@gluon.jit(do_not_specialize=["num_tiles", "heads", "down", "blocks"])
def _attention(
    query,
    query_end,
    key,
    key_end,
    value,
    value_end,
    out,
    out_end,
    num_tiles,
    heads,
    down,
    blocks,
    scale,
    QUERIES: gl.constexpr,
    KEYS: gl.constexpr,
    FIRST: gl.constexpr,
    SECOND: gl.constexpr,
    STAGES: gl.constexpr,
    TEAMS: gl.constexpr,
    TURNS: gl.constexpr,
):
    # Of queries there are two: the next are fetched while these are used.
    queries = gl.allocate_shared_memory(query.dtype, [2 * TEAMS, 1, QUERIES, 1, FIRST], query.layout)
    keys = gl.allocate_shared_memory(key.dtype, [STAGES, 1, KEYS, 1, FIRST], key.layout)
    values = gl.allocate_shared_memory(value.dtype, [STAGES, 1, KEYS, 1, FIRST], value.layout)
    outgoing = gl.allocate_shared_memory(out.dtype, [TEAMS, 1, QUERIES, 1, FIRST], out.layout)
    if SECOND > 0:
        tiles = (
            (
                queries,
                gl.allocate_shared_memory(query.dtype, [2 * TEAMS, 1, QUERIES, 1, SECOND], query_end.layout),
            ),
            (keys, gl.allocate_shared_memory(key.dtype, [STAGES, 1, KEYS, 1, SECOND], key_end.layout)),
            (values, gl.allocate_shared_memory(value.dtype, [STAGES, 1, KEYS, 1, SECOND], value_end.layout)),
            (outgoing, gl.allocate_shared_memory(out.dtype, [TEAMS, 1, QUERIES, 1, SECOND], out_end.layout)),
        )
    else:
        tiles = ((queries, queries), (keys, keys), (values, values), (outgoing, outgoing))
    # A place is full once its tile has come, and free once every team that reads it has multiplied it.
    query_full = gl.allocate_shared_memory(gl.int64, [2 * TEAMS, 1], mbarrier.MBarrierLayout())
    query_free = gl.allocate_shared_memory(gl.int64, [2 * TEAMS, 1], mbarrier.MBarrierLayout())
    key_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    key_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    value_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    value_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    # A team has its turn once the one before it has asked for its products.
    turn = gl.allocate_shared_memory(gl.int64, [TEAMS, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(2 * TEAMS):
        mbarrier.init(query_full.index(place), count=1)
        mbarrier.init(query_free.index(place), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(key_full.index(stage), count=1)
        mbarrier.init(key_free.index(stage), count=TEAMS)
        mbarrier.init(value_full.index(stage), count=1)
        mbarrier.init(value_free.index(stage), count=TEAMS)
    for team in gl.static_range(TEAMS):
        mbarrier.init(turn.index(team), count=1)
    fence_async_shared()
    signals = ((query_full, query_free), (key_full, key_free), (value_full, value_free), turn)
    extent = (num_tiles, heads, down, blocks)
    sources = ((query, query_end), (key, key_end), (value, value_end))
    outs = (out, out_end)
    # 65536 registers: as many for each team as the fetching warp and the three beside it leave.
    if TEAMS == 1:
        gl.warp_specialize(
            [
                (_attend, (0, outs, tiles, signals, extent, scale, TEAMS, SECOND, TURNS)),
                (_fetch, (sources, tiles, signals, extent, TEAMS, SECOND)),
            ],
            [1],
            [40],
        )
    elif TEAMS == 2:
        gl.warp_specialize(
            [
                (_attend, (0, outs, tiles, signals, extent, scale, TEAMS, SECOND, TURNS)),
                (_attend, (1, outs, tiles, signals, extent, scale, TEAMS, SECOND, TURNS)),
                (_fetch, (sources, tiles, signals, extent, TEAMS, SECOND)),
            ],
            [4, 1],
            [232, 40],
        )
    else:
        gl.warp_specialize(
            [
                (_attend, (0, outs, tiles, signals, extent, scale, TEAMS, SECOND, TURNS)),
                (_attend, (1, outs, tiles, signals, extent, scale, TEAMS, SECOND, TURNS)),
                (_attend, (2, outs, tiles, signals, extent, scale, TEAMS, SECOND, TURNS)),
                (_fetch, (sources, tiles, signals, extent, TEAMS, SECOND)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )


@gluon.jit
def _place(tile, heads, down):
    """Row, head and which queries of it: programs that run together read the same keys."""
    return tile // down // heads, tile // down % heads, tile % down


@gluon.jit
def _fetch(sources, tiles, signals, extent, TEAMS: gl.constexpr, SECOND: gl.constexpr):
    """Asks for all tiles in the order they are used in as places get free; does not wait for them to come."""
    num_tiles, heads, down, blocks = extent
    queries: gl.constexpr = tiles[0][0].shape[2]
    keys: gl.constexpr = tiles[1][0].shape[2]
    stages: gl.constexpr = tiles[1][0].shape[0]
    count, turns = 0, 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        row, head, below = _place(tile, heads, down)
        for team in gl.static_range(TEAMS):
            top = (below * TEAMS + team) * queries
            place = turns % 2 * TEAMS + team
            _fetch_one(sources[0], tiles[0], signals[0], row, top, head, place, turns // 2, SECOND)
        for block in range(blocks):
            top, place, lap = block * keys, count % stages, count // stages
            _fetch_one(sources[1], tiles[1], signals[1], row, top, head, place, lap, SECOND)
            _fetch_one(sources[2], tiles[2], signals[2], row, top, head, place, lap, SECOND)
            count += 1
        turns += 1  # noqa: SIM113 - Triton's language has no enumerate


@gluon.jit
def _fetch_one(source, tiles, signals, row, top, head, place, lap, SECOND: gl.constexpr):
    size: gl.constexpr = tiles[0].shape[2]
    first: gl.constexpr = tiles[0].shape[4]
    # The first time round all places are free: the phase before the first counts as over.
    mbarrier.wait(signals[1].index(place), (lap + 1) % 2)
    arrived = signals[0].index(place)
    mbarrier.expect(arrived, 2 * size * (first + SECOND))
    tma.async_copy_global_to_shared(source[0], [row, top, head, 0], arrived, tiles[0].index(place))
    if SECOND > 0:
        tma.async_copy_global_to_shared(source[1], [row, top, head, first], arrived, tiles[1].index(place))


@gluon.jit
def _attend(
    team: gl.constexpr,
    outs,
    tiles,
    signals,
    extent,
    scale,
    TEAMS: gl.constexpr,
    SECOND: gl.constexpr,
    TURNS: gl.constexpr,
):
    """All that one team does. Every team reads every block of keys and values, so all count alike."""
    num_tiles, heads, down, blocks = extent
    queries: gl.constexpr = tiles[0][0].shape[2]
    first: gl.constexpr = tiles[0][0].shape[4]
    second: gl.constexpr = SECOND if SECOND > 0 else first
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, first, 16])
    end_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, second, 16])
    count, turns = 0, 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        row, head, below = _place(tile, heads, down)
        place = turns % 2 * TEAMS + team
        mbarrier.wait(signals[0][0].index(place), turns // 2 % 2)
        sums = gl.zeros([queries, first], gl.float32, layout)
        end = gl.zeros([queries, second], gl.float32, end_layout)
        sums, end, total = _walk(
            team,
            sums,
            end,
            tiles,
            place,
            signals,
            count,
            turns,
            blocks,
            scale,
            outs[0].dtype,
            layout,
            end_layout,
            TEAMS,
            SECOND,
            TURNS,
        )
        count += blocks
        turns += 1  # noqa: SIM113 - Triton's language has no enumerate
        top = (below * TEAMS + team) * queries
        # What the tile before wrote may still be read from where this one is to wait.
        tma.store_wait(0)
        _tile(tiles[3][0], team).store((sums * _as_rows_of(1 / total, layout)).to(outs[0].dtype))
        if SECOND > 0:
            _tile(tiles[3][1], team).store((end * _as_rows_of(1 / total, end_layout)).to(outs[0].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(outs[0], [row, top, head, 0], tiles[3][0].index(team))
        if SECOND > 0:
            tma.async_copy_shared_to_global(outs[1], [row, top, head, first], tiles[3][1].index(team))
    tma.store_wait(0)


@gluon.jit
def _walk(
    team: gl.constexpr,
    sums,
    end,
    tiles,
    place,
    signals,
    count,
    turns,
    blocks,
    scale,
    dtype: gl.constexpr,
    layout: gl.constexpr,
    end_layout: gl.constexpr,
    TEAMS: gl.constexpr,
    SECOND: gl.constexpr,
    TURNS: gl.constexpr,
):
    """Some queries over all blocks of keys and values: sums of values by shares, and the shares' totals."""
    queries: gl.constexpr = tiles[0][0].shape[2]
    keys: gl.constexpr = tiles[1][0].shape[2]
    stages: gl.constexpr = tiles[1][0].shape[0]
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, keys, 16])
    factor_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    # Of the sums; so many products are left under way while scores are waited for.
    products: gl.constexpr = 2 if SECOND > 0 else 1
    key_full, key_free = signals[1]
    value_full, value_free = signals[2]
    most = gl.full([queries], float("-inf"), gl.float32, gl.SliceLayout(1, scores_layout))
    total = gl.zeros([queries], gl.float32, gl.SliceLayout(1, scores_layout))
    mbarrier.wait(key_full.index(count % stages), count // stages % 2)
    scores = _scores(tiles[0], tiles[1], place, count % stages, scores_layout, SECOND)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(key_free.index(count % stages))
    shares, most, total, _ = _shares(scores, most, total, scale)
    factors = gl.convert_layout(shares.to(dtype), factor_layout)
    for block in range(1, blocks):
        stage, last = (count + 1) % stages, count % stages
        if TURNS:
            # The first team's first turn comes by itself: the phase before the first counts as over.
            before: gl.constexpr = 1 if team == 0 else 0
            mbarrier.wait(signals[3].index(team), (turns * (blocks - 1) + block - 1 + before) % 2)
        mbarrier.wait(key_full.index(stage), (count + 1) // stages % 2)
        scores = _scores(tiles[0], tiles[1], place, stage, scores_layout, SECOND)
        mbarrier.wait(value_full.index(last), count // stages % 2)
        sums, end = _add(factors, tiles[2], last, sums, end, SECOND)
        if TURNS:
            mbarrier.arrive(signals[3].index((team + 1) % TEAMS))
        scores = warpgroup_mma_wait(products, deps=[scores])
        mbarrier.arrive(key_free.index(stage))
        shares, most, total, shrink = _shares(scores, most, total, scale)
        # Is over already. But the assembler moves the wait for the sums before arithmetic that stands before
        # it, only not over a branch: without this one the shares would be worked out behind the sums.
        mbarrier.wait(value_full.index(last), count // stages % 2)
        sums, end, factors = _wait(sums, end, factors, SECOND)
        mbarrier.arrive(value_free.index(last))
        sums *= _as_rows_of(shrink, layout)
        if SECOND > 0:
            end *= _as_rows_of(shrink, end_layout)
        factors = gl.convert_layout(shares.to(dtype), factor_layout)
        count += 1
    # All scores are there: the next queries may come.
    mbarrier.arrive(signals[0][1].index(place))
    last = count % stages
    mbarrier.wait(value_full.index(last), count // stages % 2)
    sums, end = _add(factors, tiles[2], last, sums, end, SECOND)
    sums, end, factors = _wait(sums, end, factors, SECOND)
    mbarrier.arrive(value_free.index(last))
    return sums, end, total


@gluon.jit
def _tile(tiles, place):
    return tiles.index(place).reshape([tiles.shape[2], tiles.shape[4]])


@gluon.jit
def _scores(queries, keys, place, stage, layout: gl.constexpr, SECOND: gl.constexpr):
    """Asks for them; the caller waits."""
    down: gl.constexpr = queries[0].shape[2]
    across: gl.constexpr = keys[0].shape[2]
    scores = gl.zeros([down, across], gl.float32, layout)
    scores = warpgroup_mma(
        _tile(queries[0], place), _tile(keys[0], stage).permute([1, 0]), scores, use_acc=False, is_async=True
    )
    if SECOND > 0:
        scores = warpgroup_mma(
            _tile(queries[1], place), _tile(keys[1], stage).permute([1, 0]), scores, is_async=True
        )
    return scores


@gluon.jit
def _add(factors, values, place, sums, end, SECOND: gl.constexpr):
    """Asks for the sums over some more values; the caller waits."""
    sums = warpgroup_mma(factors, _tile(values[0], place), sums, is_async=True)
    if SECOND > 0:
        end = warpgroup_mma(factors, _tile(values[1], place), end, is_async=True)
    return sums, end


@gluon.jit
def _wait(sums, end, factors, SECOND: gl.constexpr):
    """For all products; the factors stay where they are until then."""
    if SECOND > 0:
        sums, end, factors = warpgroup_mma_wait(0, deps=[sums, end, factors])
    else:
        sums, factors = warpgroup_mma_wait(0, deps=[sums, factors])
    return sums, end, factors


@gluon.jit
def _shares(scores, most, total, scale):
    """Of the scores so far: not yet divided by their total, and by how much what came before is to shrink."""
    highest = gl.maximum(most, gl.max(scores, 1))
    shrink = gl.exp2((most - highest) * scale)
    # The scale is inside: one multiplication and addition, and a power of two, which the GPU has.
    shares = gl.exp2(scores * scale - (highest * scale)[:, None])
    return shares, highest, total * shrink + gl.sum(shares, 1), shrink


@gluon.jit
def _as_rows_of(numbers, layout: gl.constexpr):
    return gl.convert_layout(numbers, gl.SliceLayout(1, layout), assert_trivial=True)[:, None]
