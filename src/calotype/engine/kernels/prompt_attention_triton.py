"""The kernel of attention to a prompt: a head's keys and values stay on chip, places walk past them.

All scores of a place are there at once, so its shares need one pass and nothing is put right later. What is
left is reading queries and writing results, once each. Scores, shares and sums are in single precision;
shares are rounded once, for the product with the values, as in all kernels of this kind.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.choice import num_multiprocessors
from calotype.engine.kernels.prompt_attention import Plan, parts_of

_PROGRAMS = 8
"""For each multiprocessor at least, where there is so much work: about five of them run at a time."""
_STEP = tl.constexpr(8)
"""Strides are handed over in so many numbers: the compiler knows that it may read sixteen bytes at once."""


def launch(query: Tensor, key: Tensor, value: Tensor, plan: Plan) -> Tensor:
    """All are (rows, heads, places or tokens, channels), and so is the result, with heads inside places."""
    rows, heads, places, channels = query.shape
    tokens = key.shape[2]
    assert key.stride() == value.stride()
    assert key.stride(1) == channels
    out = torch.empty_permuted(query.shape, (0, 2, 1, 3), dtype=query.dtype, device=query.device)
    blocks = triton.cdiv(places, plan.queries)
    # How far a program walks changes no number, so it may depend on how many rows there are.
    fewest = _PROGRAMS * num_multiprocessors(out.device)
    walk = max(1, min(plan.walk, rows * heads * blocks // fewest))
    across, along = parts_of(channels), parts_of(tokens)
    strides = (*query.stride()[:3], *key.stride()[::2], *out.stride()[::2])
    with torch.cuda.device_of(out):
        # Heads first: those that run together read and write whole places.
        _attention[heads, triton.cdiv(blocks, walk), rows](
            query,
            key,
            value,
            out,
            *(stride // _STEP.value for stride in strides),
            places,
            tokens,
            blocks,
            walk,
            math.log2(math.e) / math.sqrt(channels),
            CHANNELS=channels,
            FIRST_CHANNELS=across.first,
            MORE_CHANNELS=across.more,
            FIRST_TOKENS=along.first,
            MORE_TOKENS=along.more,
            QUERIES=plan.queries,
            STAGES=plan.stages,
            num_warps=plan.warps,
        )
    return out


_OPEN = [
    *("query_row", "query_head", "query_place", "key_row", "key_token", "out_row", "out_place"),
    *("places", "tokens", "blocks", "walk"),
]


@triton.jit(do_not_specialize=_OPEN)
def _attention(
    query,
    key,
    value,
    out,
    query_row,
    query_head,
    query_place,
    key_row,
    key_token,
    out_row,
    out_place,
    places,
    tokens,
    blocks,
    walk,
    scale,
    CHANNELS: tl.constexpr,
    FIRST_CHANNELS: tl.constexpr,
    MORE_CHANNELS: tl.constexpr,
    FIRST_TOKENS: tl.constexpr,
    MORE_TOKENS: tl.constexpr,
    QUERIES: tl.constexpr,
    STAGES: tl.constexpr,
):
    head, row = tl.program_id(0) * CHANNELS, tl.program_id(2).to(tl.int64) * _STEP
    query += row * query_row + tl.program_id(0).to(tl.int64) * query_head * _STEP
    key += row * key_row + head
    value += row * key_row + head
    out += row * out_row + head
    channels: tl.constexpr = (CHANNELS, FIRST_CHANNELS, MORE_CHANNELS)
    along = tl.arange(0, FIRST_TOKENS)
    keys = _read(key, along, tokens, key_token, channels)
    values = _read(value, along, tokens, key_token, channels)
    if MORE_TOKENS > 0:
        further = FIRST_TOKENS + tl.arange(0, MORE_TOKENS)
        more_keys = _read(key, further, tokens, key_token, channels)
        more_values = _read(value, further, tokens, key_token, channels)
    first = tl.program_id(1) * walk
    for block in tl.range(first, tl.minimum(first + walk, blocks), num_stages=STAGES):
        below = block * QUERIES + tl.arange(0, QUERIES)
        queries = _read(query, below, places, query_place, channels)
        scores = _scores(queries, keys, MORE_CHANNELS)
        # Tokens beyond the last are in the last part.
        if MORE_TOKENS > 0:
            more_scores = _scores(queries, more_keys, MORE_CHANNELS)
            more_scores = tl.where((further < tokens)[None, :], more_scores, float("-inf"))
            most = tl.maximum(tl.max(scores, 1), tl.max(more_scores, 1))
        else:
            scores = tl.where((along < tokens)[None, :], scores, float("-inf"))
            most = tl.max(scores, 1)
        # The scale is inside: one multiplication and addition, and a power of two, which the GPU has.
        shares = tl.exp2(scores * scale - (most * scale)[:, None])
        total = tl.sum(shares, 1)
        sums = _added(shares, values, _zeros(QUERIES, channels), MORE_CHANNELS)
        if MORE_TOKENS > 0:
            shares = tl.exp2(more_scores * scale - (most * scale)[:, None])
            total += tl.sum(shares, 1)
            sums = _added(shares, more_values, sums, MORE_CHANNELS)
        _write(out, below, places, out_place, sums, (1 / total)[:, None], channels)


@triton.jit
def _part(x, below, size, stride, across, CHANNELS: tl.constexpr):
    """Where numbers lie, and which of them there are."""
    taken = (below < size)[:, None] & (across < CHANNELS)[None, :]
    return x + below[:, None] * (stride * _STEP) + across[None, :], taken


@triton.jit
def _read(x, below, size, stride, channels: tl.constexpr):
    """A head's channels in two parts; where all are in the first, the second is never used."""
    here, taken = _part(x, below, size, stride, tl.arange(0, channels[1]), channels[0])
    first = tl.load(here, mask=taken, other=0.0)
    second = first
    if channels[2] > 0:
        here, taken = _part(x, below, size, stride, channels[1] + tl.arange(0, channels[2]), channels[0])
        second = tl.load(here, mask=taken, other=0.0)
    return first, second


@triton.jit
def _write(x, below, size, stride, numbers, factor, channels: tl.constexpr):
    here, taken = _part(x, below, size, stride, tl.arange(0, channels[1]), channels[0])
    tl.store(here, (numbers[0] * factor).to(x.dtype.element_ty), mask=taken)
    if channels[2] > 0:
        here, taken = _part(x, below, size, stride, channels[1] + tl.arange(0, channels[2]), channels[0])
        tl.store(here, (numbers[1] * factor).to(x.dtype.element_ty), mask=taken)


@triton.jit
def _scores(queries, keys, MORE_CHANNELS: tl.constexpr):
    scores = tl.dot(queries[0], tl.trans(keys[0]))
    if MORE_CHANNELS > 0:
        scores = tl.dot(queries[1], tl.trans(keys[1]), scores)
    return scores


@triton.jit
def _zeros(QUERIES: tl.constexpr, channels: tl.constexpr):
    first = tl.zeros([QUERIES, channels[1]], tl.float32)
    second = first
    if channels[2] > 0:
        second = tl.zeros([QUERIES, channels[2]], tl.float32)
    return first, second


@triton.jit
def _added(shares, values, sums, MORE_CHANNELS: tl.constexpr):
    """The sums with some more values, by their shares."""
    factors = shares.to(values[0].dtype)
    first, second = tl.dot(factors, values[0], sums[0]), sums[1]
    if MORE_CHANNELS > 0:
        second = tl.dot(factors, values[1], sums[1])
    return first, second
