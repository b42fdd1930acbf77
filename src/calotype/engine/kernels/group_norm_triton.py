"""The kernels of group normalization.

The input may consist of parts: a sum, `a + addend + extra`, and the channels of `b` as if concatenated;
groups and blocks may cross the seam. The kernel that reads the parts also writes the whole.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _parts(
    a, b, addend, first, rows, columns, taken, channels_a, channels_b, TWO: tl.constexpr, ADD: tl.constexpr
):
    """What these columns have, and what is to be added, `rows` after the row `first` of the whole batch."""
    own = rows[:, None] * channels_a + columns[None, :]
    source = a + first * channels_a + own
    summed = taken
    if TWO:
        left = (columns < channels_a)[None, :]
        other = b + first * channels_b + (rows[:, None] * channels_b + (columns - channels_a)[None, :])
        source = tl.where(left, source, other)
        summed = taken & left
    raw = tl.load(source, mask=taken, other=0.0)
    more = raw
    if ADD:
        more = tl.load(addend + first * channels_a + own, mask=summed, other=0.0)
    return raw, more


@triton.jit
def _extra(extra, columns, channels_a, EXTRA: tl.constexpr):
    """What is added to each of these columns besides."""
    found = columns
    if EXTRA:
        found = tl.load(extra + columns, mask=columns < channels_a, other=0.0).to(tl.float32)
    return found


@triton.jit
def _sum(raw, more, extra, ADD: tl.constexpr, EXTRA: tl.constexpr):
    """Rounded as it is stored: what is normalised is what is handed on."""
    if ADD or EXTRA:
        exact = raw.to(tl.float32)
        if ADD:
            exact += more.to(tl.float32)
        if EXTRA:
            exact += extra[None, :]
        raw = exact.to(raw.dtype)
    return raw


@triton.jit
def _finish(x, center, scale, bias, factor, SILU: tl.constexpr, LARGEST: tl.constexpr):
    y = (x - center) * scale + bias
    if SILU:
        y = y / (1.0 + tl.exp(-y))
    if LARGEST > 0:
        y = tl.clamp(y * factor, -LARGEST, LARGEST)
    return y


@triton.jit(do_not_specialize=["num_rows"])
def whole_groups(
    a,
    b,
    addend,
    extra,
    whole,
    shift,
    shift_stride,
    channels_a,
    channels_b,
    num_rows,
    weight,
    bias,
    out,
    eps,
    factor,
    GROUP: tl.constexpr,
    TWO: tl.constexpr,
    ADD: tl.constexpr,
    EXTRA: tl.constexpr,
    SHIFTED: tl.constexpr,
    SILU: tl.constexpr,
    LARGEST: tl.constexpr,
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
    raw, more = _parts(a, b, addend, first, rows, columns, taken, channels_a, channels_b, TWO, ADD)
    raw = _sum(raw, more, _extra(extra, columns, channels_a, EXTRA), ADD, EXTRA)
    places = first * channels + (rows[:, None] * channels + columns[None, :])
    if TWO or ADD or EXTRA:
        tl.store(whole + places, raw, mask=taken)
    x = raw.to(tl.float32)
    if SHIFTED:
        x += tl.load(shift + n * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
    if EXTRA or SHIFTED:
        x = tl.where(taken, x, 0.0)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    count = num_rows * GROUP
    mean = tl.sum(tl.sum(x, 0), 0) / count
    away = tl.where(taken, x - mean, 0.0)
    variance = tl.sum(tl.sum(away * away, 0), 0) / count
    scale = scale * tl.rsqrt(variance + eps)
    y = _finish(away, 0.0, scale[None, :], offset[None, :], factor, SILU, LARGEST)
    tl.store(out + places, y.to(out.dtype.element_ty), mask=taken)


@triton.jit(do_not_specialize=["num_rows"])
def chunk_statistics(
    a,
    b,
    addend,
    extra,
    whole,
    shift,
    shift_stride,
    channels_a,
    channels_b,
    num_rows,
    num_groups,
    partial,
    GROUP: tl.constexpr,
    TWO: tl.constexpr,
    ADD: tl.constexpr,
    EXTRA: tl.constexpr,
    SHIFTED: tl.constexpr,
    EVEN: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUPS_PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    FOLD: tl.constexpr,
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
    rows = tl.arange(0, ROWS)
    # Asked for one tile ahead: memory answers late.
    taken = ((rows < count) | EVEN)[:, None] & inside[None, :]
    raw, more = _parts(a, b, addend, first, rows, columns, taken, channels_a, channels_b, TWO, ADD)

    # A group's first number is its pivot: being one of them, it is not far from the others' mean.
    numbers = tl.arange(0, GROUPS_PADDED)
    groups = block * GROUPS + numbers
    kept = (numbers < GROUPS) & (groups < num_groups)
    heads = groups * GROUP
    one, more_of_one = _parts(
        a, b, addend, first, tl.arange(0, 1), heads, kept[None, :], channels_a, channels_b, TWO, ADD
    )
    one = _sum(one, more_of_one, _extra(extra, heads, channels_a, EXTRA), ADD, EXTRA)
    pivot = tl.sum(one.to(tl.float32), 0)
    if SHIFTED:
        pivot += tl.load(shift + n * shift_stride + heads, mask=kept, other=0.0).to(tl.float32)
    offset = -tl.gather(pivot, tl.minimum(within // GROUP, GROUPS_PADDED - 1), 0)
    if SHIFTED:
        offset += tl.load(shift + n * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)
    offset = tl.where(inside, offset, 0.0)
    added = _extra(extra, columns, channels_a, EXTRA)

    # Rows that lie in one thread are put together at once, so that the sums take few registers.
    sums = tl.zeros((ROWS // FOLD, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS // FOLD, COLUMNS), tl.float32)
    for tile in range(TILES):
        at = first + tile * ROWS
        left = count - (tile + 1) * ROWS
        expected = ((rows < left) | EVEN)[:, None] & (inside & (tile + 1 < TILES))[None, :]
        following, further = _parts(
            a, b, addend, at + ROWS, rows, columns, expected, channels_a, channels_b, TWO, ADD
        )
        raw = _sum(raw, more, added, ADD, EXTRA)
        if TWO or ADD or EXTRA:
            tl.store(whole + at * channels + (rows[:, None] * channels + columns[None, :]), raw, mask=taken)
        away = raw.to(tl.float32) + offset[None, :]
        if not EVEN:
            away = tl.where(taken, away, 0.0)
        sums += tl.sum(tl.reshape(away, (FOLD, ROWS // FOLD, COLUMNS)), 0)
        squares += tl.sum(tl.reshape(away * away, (FOLD, ROWS // FOLD, COLUMNS)), 0)
        raw = following
        more = further
        taken = expected
    both = tl.sum(tl.join(sums, squares), 0)
    member = (within // GROUP)[None, :] == numbers[:, None]
    total, square = tl.split(tl.sum(tl.where(member[:, :, None], both[None, :, :], 0.0), 1))
    mean = total / (count * GROUP)
    spread = tl.maximum(square - total * mean, 0.0)
    place = partial + ((n * tl.num_programs(1) + chunk) * 2) * num_groups + groups
    tl.store(place, pivot + mean, mask=kept)
    tl.store(place + num_groups, spread, mask=kept)


@triton.jit(do_not_specialize=["num_rows", "chunk_rows", "num_chunks"])
def apply_chunks(
    whole,
    shift,
    shift_stride,
    channels,
    num_rows,
    num_groups,
    chunk_rows,
    num_chunks,
    partial,
    weight,
    bias,
    out,
    eps,
    factor,
    GROUP: tl.constexpr,
    SHIFTED: tl.constexpr,
    SILU: tl.constexpr,
    LARGEST: tl.constexpr,
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
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < channels
    # Asked for before the statistics, and one tile ahead here too.
    rows = tl.arange(0, ROWS)
    start = part * (ROWS * TILES)
    taken = (rows < num_rows - start)[:, None] & inside[None, :]
    first = n * num_rows + start
    own = rows[:, None] * channels + columns[None, :]
    raw = tl.load(whole + first * channels + own, mask=taken, other=0.0)
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
        following = tl.load(whole + (first + after) * channels + own, mask=expected, other=0.0)
        y = _finish(
            raw.to(tl.float32), center[None, :], scale[None, :], offset[None, :], factor, SILU, LARGEST
        )
        tl.store(out + (first + tile * ROWS) * channels + own, y.to(out.dtype.element_ty), mask=taken)
        raw = following
        taken = expected
