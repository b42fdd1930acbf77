"""The kernels of group normalisation. Know nothing of how a picture is cut into programs.

Two inputs are read as if they were concatenated; groups and blocks may lie across the seam.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _addresses(a, b, first, rows, columns, channels_a, channels_b, TWO: tl.constexpr):
    """Where `cat([a, b])` has these columns, `rows` after the row `first` of the whole batch."""
    found = a + first * channels_a + (rows[:, None] * channels_a + columns[None, :])
    if TWO:
        other = b + first * channels_b + (rows[:, None] * channels_b + (columns - channels_a)[None, :])
        found = tl.where((columns < channels_a)[None, :], found, other)
    return found


@triton.jit
def _finish(x, center, scale, bias, SILU: tl.constexpr):
    y = (x - center) * scale + bias
    if SILU:
        y = y / (1.0 + tl.exp(-y))
    return y


@triton.jit(do_not_specialize=["num_rows"])
def whole_groups(
    a,
    b,
    shift,
    shift_stride,
    weight,
    bias,
    out,
    joined,
    channels_a,
    channels_b,
    num_rows,
    eps,
    GROUP: tl.constexpr,
    TWO: tl.constexpr,
    SHIFTED: tl.constexpr,
    SILU: tl.constexpr,
    KEEP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    n = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, ROWS)
    within = tl.arange(0, COLUMNS)
    columns = tl.program_id(0) * GROUP + within
    inside = within < GROUP
    taken = (rows < num_rows)[:, None] & inside[None, :]
    channels = channels_a + channels_b
    first = n * num_rows
    raw = tl.load(_addresses(a, b, first, rows, columns, channels_a, channels_b, TWO), mask=taken, other=0.0)
    places = first * channels + (rows[:, None] * channels + columns[None, :])
    if KEEP:
        tl.store(joined + places, raw, mask=taken)
    x = raw.to(tl.float32)
    if SHIFTED:
        added = tl.load(shift + n * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(taken, x + added[None, :], 0.0)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    count = num_rows * GROUP
    mean = tl.sum(tl.sum(x, 0), 0) / count
    away = tl.where(taken, x - mean, 0.0)
    variance = tl.sum(tl.sum(away * away, 0), 0) / count
    scale = scale * tl.rsqrt(variance + eps)
    y = _finish(away, 0.0, scale[None, :], offset[None, :], SILU)
    tl.store(out + places, y.to(out.dtype.element_ty), mask=taken)


@triton.jit(do_not_specialize=["num_rows"])
def chunk_statistics(
    a,
    b,
    shift,
    shift_stride,
    partial,
    channels_a,
    channels_b,
    num_rows,
    num_groups,
    GROUP: tl.constexpr,
    TWO: tl.constexpr,
    SHIFTED: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUPS_PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    block, chunk, n = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    channels = channels_a + channels_b
    within = tl.arange(0, COLUMNS)
    columns = block * (GROUPS * GROUP) + within
    inside = (within < GROUPS * GROUP) & (columns < channels)
    start = chunk * (ROWS * TILES)
    count = tl.minimum(ROWS * TILES, num_rows - start)
    first = n * num_rows + start
    top = tl.arange(0, 1)
    pivot = tl.load(
        _addresses(a, b, first, top, columns, channels_a, channels_b, TWO), mask=inside[None, :], other=0.0
    ).to(tl.float32)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    rows = tl.arange(0, ROWS)
    for tile in range(TILES):
        taken = (rows < count - tile * ROWS)[:, None] & inside[None, :]
        places = _addresses(a, b, first + tile * ROWS, rows, columns, channels_a, channels_b, TWO)
        x = tl.load(places, mask=taken, other=0.0).to(tl.float32)
        away = tl.where(taken, x - pivot, 0.0)
        sums += away
        squares += away * away
    total = tl.sum(sums, 0)
    mean = total / count
    spread = tl.maximum(tl.sum(squares, 0) - total * mean, 0.0)
    mean += tl.sum(pivot, 0)
    if SHIFTED:
        mean += tl.load(shift + n * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)
    numbers = tl.arange(0, GROUPS_PADDED)
    member = (within // GROUP)[None, :] == numbers[:, None]
    group_mean = tl.sum(tl.where(member, mean[None, :], 0.0), 1) / GROUP
    apart = mean - tl.sum(tl.where(member, group_mean[:, None], 0.0), 0)
    group_spread = tl.sum(tl.where(member, (spread + count * apart * apart)[None, :], 0.0), 1)
    groups = block * GROUPS + numbers
    kept = (numbers < GROUPS) & (groups < num_groups)
    place = partial + ((n * tl.num_programs(1) + chunk) * 2) * num_groups + groups
    tl.store(place, group_mean, mask=kept)
    tl.store(place + num_groups, group_spread, mask=kept)


@triton.jit(do_not_specialize=["num_rows", "chunk_rows", "num_chunks"])
def apply_chunks(
    a,
    b,
    shift,
    shift_stride,
    weight,
    bias,
    out,
    joined,
    partial,
    channels_a,
    channels_b,
    num_rows,
    num_groups,
    chunk_rows,
    num_chunks,
    eps,
    GROUP: tl.constexpr,
    TWO: tl.constexpr,
    SHIFTED: tl.constexpr,
    SILU: tl.constexpr,
    KEEP: tl.constexpr,
    GROUPS_PADDED: tl.constexpr,
    CHUNKS_PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    # From the end: what the statistics read last is still in the cache.
    block = tl.program_id(0)
    part = tl.num_programs(1) - 1 - tl.program_id(1)
    n = (tl.num_programs(2) - 1 - tl.program_id(2)).to(tl.int64)
    channels = channels_a + channels_b
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < channels
    # Asked for before the statistics and one tile ahead after that: memory answers late.
    rows = tl.arange(0, ROWS)
    start = part * (ROWS * TILES)
    taken = (rows < num_rows - start)[:, None] & inside[None, :]
    first = n * num_rows + start
    raw = tl.load(_addresses(a, b, first, rows, columns, channels_a, channels_b, TWO), mask=taken, other=0.0)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)

    first_group = block * COLUMNS // GROUP
    numbers = tl.arange(0, GROUPS_PADDED)
    chunks = tl.arange(0, CHUNKS_PADDED)
    known = (chunks < num_chunks)[:, None] & (first_group + numbers < num_groups)[None, :]
    places = partial + (n * num_chunks * 2) * num_groups
    places = places + (chunks[:, None] * 2 * num_groups + (first_group + numbers)[None, :])
    means = tl.load(places, mask=known, other=0.0)
    spreads = tl.load(places + num_groups, mask=known, other=0.0)
    counts = tl.minimum(chunk_rows, num_rows - chunks * chunk_rows).to(tl.float32)[:, None]
    mean = tl.sum(tl.where(known, means * counts, 0.0), 0) / num_rows
    apart = means - mean[None, :]
    spread = tl.sum(tl.where(known, spreads + counts * GROUP * apart * apart, 0.0), 0)
    inverse = tl.rsqrt(spread / (num_rows * GROUP) + eps)

    member = (columns // GROUP - first_group)[None, :] == numbers[:, None]
    center = tl.sum(tl.where(member, mean[:, None], 0.0), 0)
    scale = scale * tl.sum(tl.where(member, inverse[:, None], 0.0), 0)
    if SHIFTED:
        center -= tl.load(shift + n * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)

    for tile in range(TILES):
        after = (tile + 1) * ROWS
        expected = (rows < num_rows - start - after)[:, None] & inside[None, :] & (tile + 1 < TILES)
        source = _addresses(a, b, first + after, rows, columns, channels_a, channels_b, TWO)
        following = tl.load(source, mask=expected, other=0.0)
        to = (first + tile * ROWS) * channels + (rows[:, None] * channels + columns[None, :])
        if KEEP:
            tl.store(joined + to, raw, mask=taken)
        y = _finish(raw.to(tl.float32), center[None, :], scale[None, :], offset[None, :], SILU)
        tl.store(out + to, y.to(out.dtype.element_ty), mask=taken)
        raw = following
        taken = expected
