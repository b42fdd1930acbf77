"""The kernels of a 3×3 convolution in e4m3: a matrix product whose second factor is never written out.

The first factor is the weights, a row for each channel that is made; the second has a column for each place
of the pictures; the depth is nine times the channels that are read: for each of the nine taps the same
places, one to a side. In this order, weights first, Triton leaves both where the tensor cores read them; with
the pictures first it takes them through registers. Two kernels differ in how they fetch the pictures. One has
Hopper's copy engine cut boxes out of them, which makes the zeros around them too; the other follows pointers,
with a mask at the border.

The depth is summed tap by tap and channel by channel whatever the tile, so that a picture is the same alone
and in any batch. The tensor cores' own sums are said to keep about fourteen bits, over a depth of up to 23040
here: a tile may put them aside after some of the taps and begin anew, which takes registers and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from calotype.engine.kernels.fp8_convolution import TAPS, Weight

_NEIGHBOURS = 8
"""Tiles one below the other that are made one after the other: they share what they read."""
_MULTIPROCESSORS = 132


@dataclass(frozen=True)
class Tile:
    """What one program makes, and how."""

    places: int
    channels: int
    more: int = 0
    """Channels besides. Stable Diffusion's widths are five times a power of two, and so may a tile be."""
    depth: int = 128
    """Channels of one tap that are read at a time."""
    warps: int = 8
    stages: int = 3
    boxes: bool = True
    """Whether the copy engine fetches the places."""
    taps: int = 9
    """After so many (1 or 3) the sums are put aside, in bf16; with 9 never. Changes the numbers a little."""

    @property
    def width(self) -> int:
        return self.channels + self.more

    def __str__(self) -> str:
        made = f"{self.channels}+{self.more}" if self.more else f"{self.channels}"
        how = ("" if self.boxes else ", pointers") + (f", {self.taps} taps" if self.taps < TAPS else "")
        return f"{made}×{self.places}×{self.depth}, {self.warps} warps, {self.stages} stages{how}"


def tile_for(num_places: int, channels: int, made: int) -> Tile:
    """Chosen by what a tile reads for what it multiplies; the fastest of nine on an H200 as well.

    A tile of 128 channels and 256 places is the largest whose sums fit into registers; 256 + 64 channels and
    128 places is larger still, and leaves nothing over where 128 does not divide a width. Channels that are
    read by 128 fill the copy engine's widest row; where that leaves some over, half as many.
    """
    whole = channels % 128 == 0
    depth, stages = (128, 3) if whole else (64, 6)
    large = Tile(256, 128, 0, depth, 8, stages) if made % 128 == 0 else Tile(128, 256, 64, depth, 8, stages)
    if triton.cdiv(num_places, large.places) * triton.cdiv(made, large.width) < _MULTIPROCESSORS:
        return Tile(128, 128 if made % 128 == 0 else 64, 0, depth, 4, stages + 1)
    return large


@cache
def box_of(places: int, n: int, height: int, width: int) -> tuple[int, int, int]:
    """Pictures, rows and columns of boxes with so many places: as few boxes as can be, long and low ones."""
    sides = [2**power for power in reversed(range(places.bit_length()))]
    shapes = [(places // (high * wide), high, wide) for wide in sides for high in sides]
    return min(
        (shape for shape in shapes if prod(shape) == places),
        key=lambda shape: prod(_boxes(shape, n, height, width)),
    )


def _boxes(box: tuple[int, int, int], *sizes: int) -> tuple[int, ...]:
    return tuple(triton.cdiv(size, part) for size, part in zip(sizes, box, strict=True))


def launch(
    x: Tensor, weight: Weight, bias: Tensor | None, dtype: torch.dtype, tile: Tile | None = None
) -> Tensor:
    """Of channels-last pictures; a tile is chosen if none is given."""
    n, channels, height, width = x.shape
    made = len(weight.scale)
    tile = tile or tile_for(n * height * width, channels, made)
    assert tile.taps == TAPS or (tile.boxes and not tile.more), tile  # there are no registers for more
    pictures = x.permute(0, 2, 3, 1).contiguous()
    out = torch.empty((n, height, width, made), dtype=dtype, device=x.device)
    # A kernel takes a pointer for everything; what is switched off is never followed.
    of_channels = (weight.scale, weight.scale if bias is None else bias.contiguous())
    settings: dict[str, Any] = {
        "BIAS": bias is not None,
        "CHANNELS": tile.channels,
        "MORE": tile.more,
        "DEPTH": tile.depth,
        # Compiled in: of a loop that might not be run at all the compiler waits after each product.
        "STEPS": triton.cdiv(channels, tile.depth),
        "PLACES": tile.places,
        "NEIGHBOURS": _NEIGHBOURS,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    across = triton.cdiv(made, tile.width)
    with torch.cuda.device_of(out):
        if not tile.boxes:
            places = n * height * width
            _convolution_by_pointers[(triton.cdiv(places, tile.places) * across,)](
                pictures,
                weight.values,
                out,
                *of_channels,
                places,
                height,
                width,
                channels,
                made,
                **settings,
            )
            return out.permute(0, 3, 1, 2)
        box = box_of(tile.places, n, height, width)
        boxes = _boxes(box, n, height, width)
        matrix = weight.values.flatten(0, 1)
        parts = (tile.channels, tile.more or tile.channels)
        _convolution_in_boxes[(prod(boxes) * across,)](
            TensorDescriptor.from_tensor(pictures, [*box, tile.depth]),
            *(TensorDescriptor.from_tensor(matrix, [part, tile.depth]) for part in parts),
            *(TensorDescriptor.from_tensor(out, [*box, part]) for part in parts),
            *of_channels,
            *boxes,
            made,
            PICTURES=box[0],
            HIGH=box[1],
            WIDE=box[2],
            ALONE=tile.taps,
            **settings,
        )
    return out.permute(0, 3, 1, 2)


@triton.jit
def _tile(down, across, NEIGHBOURS: tl.constexpr):
    """Which one a program makes: how far down, how far across."""
    program = tl.program_id(0)
    first = program // (NEIGHBOURS * across) * NEIGHBOURS
    neighbours = tl.minimum(down - first, NEIGHBOURS)
    within = program % (NEIGHBOURS * across)
    return first + within % neighbours, within // neighbours


@triton.jit
def _finished(sums, first, scales, bias, made, BIAS: tl.constexpr, dtype: tl.constexpr):
    """In the pictures' own units, a row for each place."""
    channels = first + tl.arange(0, sums.shape[0])
    inside = channels < made
    numbers = sums * tl.load(scales + channels, mask=inside, other=0.0)[:, None]
    if BIAS:
        numbers += tl.load(bias + channels, mask=inside, other=0.0).to(tl.float32)[:, None]
    return numbers.to(dtype).T


@triton.jit(do_not_specialize=["pictures", "high", "wide"])
def _convolution_in_boxes(
    x,
    weight,
    weight_more,
    out,
    out_more,
    scales,
    bias,
    pictures,
    high,
    wide,
    made,
    BIAS: tl.constexpr,
    PICTURES: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    ALONE: tl.constexpr,
    CHANNELS: tl.constexpr,
    MORE: tl.constexpr,
    DEPTH: tl.constexpr,
    STEPS: tl.constexpr,
    PLACES: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
):
    box, part = _tile(pictures * high * wide, tl.cdiv(made, CHANNELS + MORE), NEIGHBOURS)
    n = box // (high * wide) * PICTURES
    top = box // wide % high * HIGH
    left = box % wide * WIDE
    first = part * (CHANNELS + MORE)
    sums = tl.zeros((CHANNELS, PLACES), tl.float32)
    if MORE > 0:
        sums_more = tl.zeros((MORE, PLACES), tl.float32)
    aside = tl.zeros((CHANNELS, PLACES), tl.bfloat16)
    for step in range(9 * STEPS):
        tap = step // STEPS
        channel = step % STEPS * DEPTH
        # Outside a picture, and behind its last channel, the copy engine finds zeros.
        near = x.load([n, top + tap // 3 - 1, left + tap % 3 - 1, channel]).reshape(PLACES, DEPTH).T
        row = tap * made + first
        sums = tl.dot(weight.load([row, channel]), near, sums)
        if MORE > 0:
            sums_more = tl.dot(weight_more.load([row + CHANNELS, channel]), near, sums_more)
        # Behind the products: before them each step would wait for the one before.
        if ALONE < 9 and step % (ALONE * STEPS) == ALONE * STEPS - 1:
            aside = (aside.to(tl.float32) + sums).to(tl.bfloat16)
            sums = tl.zeros((CHANNELS, PLACES), tl.float32)
    if ALONE < 9:
        sums = aside.to(tl.float32)
    numbers = _finished(sums, first, scales, bias, made, BIAS, out.dtype)
    out.store([n, top, left, first], numbers.reshape(PICTURES, HIGH, WIDE, CHANNELS))
    if MORE > 0:
        numbers = _finished(sums_more, first + CHANNELS, scales, bias, made, BIAS, out.dtype)
        out_more.store([n, top, left, first + CHANNELS], numbers.reshape(PICTURES, HIGH, WIDE, MORE))


@triton.jit
def _rows(weight, first, made, channels, within, NUM: tl.constexpr):
    """Where the weights of so many channels begin; whose there are none is given another's."""
    rows = tl.minimum(first + tl.arange(0, NUM), made - 1)
    return weight + rows[:, None] * channels + within[None, :]


@triton.jit
def _store(numbers, out, places, first, num_places, made):
    channels = first + tl.arange(0, numbers.shape[1])
    there = (places < num_places)[:, None] & (channels < made)[None, :]
    tl.store(out + places.to(tl.int64)[:, None] * made + channels[None, :], numbers, mask=there)


@triton.jit(do_not_specialize=["num_places"])
def _convolution_by_pointers(
    x,
    weight,
    out,
    scales,
    bias,
    num_places,
    height,
    width,
    channels,
    made,
    BIAS: tl.constexpr,
    CHANNELS: tl.constexpr,
    MORE: tl.constexpr,
    DEPTH: tl.constexpr,
    STEPS: tl.constexpr,
    PLACES: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
):
    row, part = _tile(tl.cdiv(num_places, PLACES), tl.cdiv(made, CHANNELS + MORE), NEIGHBOURS)
    places = row * PLACES + tl.arange(0, PLACES)
    first = part * (CHANNELS + MORE)
    down = places // width % height
    across = places % width
    within = tl.arange(0, DEPTH)
    here = x + places.to(tl.int64)[:, None] * channels + within[None, :]
    mine = _rows(weight, first, made, channels, within, CHANNELS)
    sums = tl.zeros((CHANNELS, PLACES), tl.float32)
    if MORE > 0:
        mine_more = _rows(weight, first + CHANNELS, made, channels, within, MORE)
        sums_more = tl.zeros((MORE, PLACES), tl.float32)
    for step in range(9 * STEPS):
        tap = step // STEPS
        channel = step % STEPS * DEPTH
        y = tap // 3 - 1
        z = tap % 3 - 1
        there = (down + y >= 0) & (down + y < height) & (across + z >= 0) & (across + z < width)
        there = there & (places < num_places)
        # A channel behind the last is zero in the pictures, so it does not matter what it is multiplied with;
        # but what is read beyond the weights might be no number.
        left = (within < channels - channel)[None, :]
        near = tl.load(here + ((y * width + z) * channels + channel), mask=there[:, None] & left, other=0.0)
        behind = tap * made * channels + channel
        sums = tl.dot(tl.load(mine + behind, mask=left, other=0.0), near.T, sums)
        if MORE > 0:
            sums_more = tl.dot(
                tl.load(mine_more + behind, mask=left, other=0.0),
                near.T,
                sums_more,
            )
    numbers = _finished(sums, first, scales, bias, made, BIAS, out.dtype.element_ty)
    _store(numbers, out, places, first, num_places, made)
    if MORE > 0:
        numbers = _finished(sums_more, first + CHANNELS, scales, bias, made, BIAS, out.dtype.element_ty)
        _store(numbers, out, places, first + CHANNELS, num_places, made)
