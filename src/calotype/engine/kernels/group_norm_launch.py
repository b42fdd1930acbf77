"""Splits group normalization into programs, over channels-last memory.

A picture small enough is normalised group by group, each in one program that reads it once. A larger one is
cut into chunks of positions: one kernel leaves each chunk's mean and squared deviations per group, a second
puts them together in the order of the chunks, always the same, and normalises. The numbers stand relative to
a pivot while they are summed, so that a large mean costs no digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

import torch
import triton
from torch import Tensor

from calotype.engine.kernels.group_norm_triton import apply_chunks, chunk_statistics, whole_groups
from calotype.engine.kernels.quantize import LARGEST, VALUE_TYPES

# Elements of one group that one program holds in registers, after rounding both sides up.
_WHOLE = 32768
_TILE = 4096
_COLUMNS = 128
_MAX_CHUNKS = 256


@dataclass(frozen=True)
class _Split:
    """How an image of one shape is split; independent of the batch."""

    groups_per_block: int
    columns: int
    rows: int
    chunk_rows: int
    num_chunks: int
    apply_columns: int
    apply_groups: int
    apply_rows: int
    part_rows: int


@cache
def _split(channels: int, num_rows: int, num_groups: int) -> _Split:
    group = channels // num_groups
    groups_per_block = min(num_groups, max(1, _COLUMNS // group))
    columns = triton.next_power_of_2(groups_per_block * group)
    rows = max(1, _TILE // columns)
    # Enough programs for every multiprocessor with one image.
    programs = min(256, max(192, channels * num_rows // 16384))
    chunks = min(_MAX_CHUNKS, max(1, programs // triton.cdiv(num_groups, groups_per_block)))
    chunk_rows = _share(num_rows, chunks, rows)
    # Powers of two leave no lane idle: the activation keeps the special function units busy.
    # For narrow groups a program takes fewer columns, since it combines their chunks in registers.
    widest = _COLUMNS if group >= 8 else _COLUMNS // 2
    apply_columns = gcd(channels, widest)
    if apply_columns < 32:
        apply_columns = min(widest, triton.next_power_of_2(channels))
    apply_rows = _TILE // apply_columns
    parts = max(1, max(256, channels * num_rows // 2**17) // triton.cdiv(channels, apply_columns))
    return _Split(
        groups_per_block,
        columns,
        rows,
        chunk_rows,
        triton.cdiv(num_rows, chunk_rows),
        apply_columns,
        apply_columns // group if apply_columns % group == 0 else (apply_columns - 1) // group + 2,
        apply_rows,
        _share(num_rows, parts, apply_rows),
    )


def _share(num_rows: int, parts: int, rows: int) -> int:
    """The size of each of at most so many parts: tiles of `rows`, a power of two of them.

    The number of tiles is compiled into the kernel, so there must not be many different ones.
    """
    return rows * triton.next_power_of_2(triton.cdiv(num_rows, parts * rows))


@dataclass(frozen=True)
class _Work:
    """Arguments of the kernels. Disabled inputs have a pointer too, which is never dereferenced."""

    n: int
    num_groups: int
    parts: tuple[Tensor, ...]
    whole: Tensor
    shift: tuple[Tensor, int]
    sizes: tuple[int, int, int]
    results: tuple[Tensor, Tensor, Tensor, float, float]
    given: dict[str, bool]
    settings: dict[str, int]
    finish: dict[str, float]


def launch(
    a: Tensor,
    weight: Tensor,
    bias: Tensor,
    num_groups: int,
    eps: float,
    *,
    silu: bool,
    shift: Tensor | None = None,
    b: Tensor | None = None,
    addend: Tensor | None = None,
    extra: Tensor | None = None,
    factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The normalized images, and the inputs of the norm: `cat([a + addend + extra, b])`.

    With a factor the first are multiplied by it, and in e4m3.
    """
    a = a.contiguous(memory_format=torch.channels_last)
    if b is not None:
        assert (b.shape[0], *b.shape[2:], b.dtype) == (a.shape[0], *a.shape[2:], a.dtype), (a.shape, b.shape)
        b = b.contiguous(memory_format=torch.channels_last)
    if addend is not None:
        assert (addend.shape, addend.dtype) == (a.shape, a.dtype), (addend.shape, a.shape)
        addend = addend.contiguous(memory_format=torch.channels_last)
    if extra is not None:
        assert extra.shape == a.shape[1:2], (extra.shape, a.shape)
        extra = extra.contiguous()
    channels_b = 0 if b is None else b.shape[1]
    channels = a.shape[1] + channels_b
    assert channels % num_groups == 0, (channels, num_groups)
    if shift is not None:
        assert shift.shape == (a.shape[0], channels), (shift.shape, a.shape)
        shift = shift if shift.stride(1) == 1 else shift.contiguous()
    given = {"TWO": b is not None, "ADD": addend is not None, "EXTRA": extra is not None}
    whole = _empty(a, channels, a.dtype) if any(given.values()) else a
    out = _empty(a, channels, a.dtype if factor is None else VALUE_TYPES["fp8"])
    work = _Work(
        n=a.shape[0],
        num_groups=num_groups,
        parts=(a, *(a if each is None else each for each in (b, addend, extra))),
        whole=whole,
        shift=(a, 0) if shift is None else (shift, shift.stride(0)),
        sizes=(a.shape[1], channels_b, a.shape[2] * a.shape[3]),
        results=(weight.contiguous(), bias.contiguous(), out, eps, 1.0 if factor is None else factor),
        given=given,
        settings={"GROUP": channels // num_groups, "SHIFTED": shift is not None},
        finish={"SILU": silu, "LARGEST": 0.0 if factor is None else LARGEST["fp8"]},
    )
    with torch.cuda.device_of(a):
        if not _whole(work):
            _in_chunks(work)
    return out, whole


def _empty(like: Tensor, channels: int, dtype: torch.dtype) -> Tensor:
    shape = (like.shape[0], channels, *like.shape[2:])
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=torch.channels_last)


def _whole(work: _Work) -> bool:
    """Normalize group by group if one program can hold a group; returns whether it can."""
    rows, columns = (triton.next_power_of_2(side) for side in (work.sizes[2], work.settings["GROUP"]))
    numbers = rows * columns
    if numbers > _WHOLE:
        return False
    whole_groups[work.num_groups, work.n](
        *work.parts,
        work.whole,
        *work.shift,
        *work.sizes,
        *work.results,
        **work.given,
        **work.settings,
        **work.finish,
        ROWS=rows,
        COLUMNS=columns,
        num_warps=4 if numbers <= 4096 else 8 if numbers <= 16384 else 16,
    )
    return True


def _in_chunks(work: _Work) -> None:
    channels, num_rows = work.sizes[0] + work.sizes[1], work.sizes[2]
    cut = _split(channels, num_rows, work.num_groups)
    partial = torch.empty(
        (work.n, cut.num_chunks, 2, work.num_groups), dtype=torch.float32, device=work.whole.device
    )
    blocks = triton.cdiv(work.num_groups, cut.groups_per_block)
    chunk_statistics[blocks, cut.num_chunks, work.n](
        *work.parts,
        work.whole,
        *work.shift,
        *work.sizes,
        work.num_groups,
        partial,
        **work.given,
        **work.settings,
        EVEN=num_rows % cut.chunk_rows == 0,
        GROUPS=cut.groups_per_block,
        GROUPS_PADDED=triton.next_power_of_2(cut.groups_per_block),
        COLUMNS=cut.columns,
        ROWS=cut.rows,
        FOLD=min(4, cut.rows),
        TILES=cut.chunk_rows // cut.rows,
        num_warps=4,
    )
    parts = triton.cdiv(num_rows, cut.part_rows)
    apply_chunks[triton.cdiv(channels, cut.apply_columns), parts, work.n](
        work.whole,
        *work.shift,
        channels,
        num_rows,
        work.num_groups,
        cut.chunk_rows,
        cut.num_chunks,
        partial,
        *work.results,
        **work.settings,
        **work.finish,
        GROUPS_PADDED=triton.next_power_of_2(cut.apply_groups),
        CHUNKS_PADDED=triton.next_power_of_2(cut.num_chunks),
        COLUMNS=cut.apply_columns,
        ROWS=cut.apply_rows,
        TILES=cut.part_rows // cut.apply_rows,
        num_warps=4,
    )
