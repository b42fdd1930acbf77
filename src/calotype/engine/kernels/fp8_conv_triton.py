"""The kernel of a 3×3 convolution in e4m3: an implicit GEMM, whose second factor is never written out.

The first factor is the weights, with a row per output channel; the second has a column per position of the
images; the depth is nine times the input channels: for each of the nine taps the same positions, shifted by
one. In this order, weights first, Triton leaves both in the shared memory that the tensor cores read; with
the images first it copies them through registers. Hopper's copy engine reads boxes of the images, which also
provides the zero padding.

The depth is summed tap by tap and channel by channel for any tile, so that an image is the same alone and in
any batch. The tensor cores' accumulators reportedly keep about fourteen bits, over a depth of up to 23040
here: on an H200 that changes no value by more than 0.05 of those around one.
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

from calotype.engine.kernels.fp8_conv import Weight

_NEIGHBOURS = 8
"""Vertically adjacent tiles that are computed consecutively: they share their inputs."""
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

    @property
    def width(self) -> int:
        return self.channels + self.more

    def __str__(self) -> str:
        made = f"{self.channels}+{self.more}" if self.more else f"{self.channels}"
        return f"{made}×{self.places}×{self.depth}, {self.warps} warps, {self.stages} stages"


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
    for step in range(9 * STEPS):
        tap = step // STEPS
        channel = step % STEPS * DEPTH
        # Outside a picture, and behind its last channel, the copy engine finds zeros.
        near = x.load([n, top + tap // 3 - 1, left + tap % 3 - 1, channel]).reshape(PLACES, DEPTH).T
        row = tap * made + first
        sums = tl.dot(weight.load([row, channel]), near, sums)
        if MORE > 0:
            sums_more = tl.dot(weight_more.load([row + CHANNELS, channel]), near, sums_more)
    numbers = _finished(sums, first, scales, bias, made, BIAS, out.dtype)
    out.store([n, top, left, first], numbers.reshape(PICTURES, HIGH, WIDE, CHANNELS))
    if MORE > 0:
        numbers = _finished(sums_more, first + CHANNELS, scales, bias, made, BIAS, out.dtype)
        out_more.store([n, top, left, first + CHANNELS], numbers.reshape(PICTURES, HIGH, WIDE, MORE))
