"""The kernel that updates many tensors in one launch: one program per chunk of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from calotype.engine.kernels.adamw import Settings, Updated

_BLOCK, _BLOCKS = 1024, 16
_STRETCH = _BLOCK * _BLOCKS


def launch(
    tensors: Updated, rates: Tensor, roots: Tensor, factor: Tensor, left_out: Tensor, settings: Settings
) -> None:
    device = rates.device
    lists = [tensors.weights, tensors.gradients, tensors.means, tensors.squares, tensors.averages]
    places = [[tensor.data_ptr() for tensor in each] for each in lists if each]
    sizes = tuple(weight.numel() for weight in tensors.weights)
    whose, firsts, num_stretches = _stretches(sizes, device)
    with torch.cuda.device_of(rates):
        _adamw[(num_stretches,)](
            _numbers([*places, list(sizes)], device),
            whose,
            firsts,
            rates,
            roots,
            factor,
            left_out,
            len(sizes),
            1 - settings.learning_rate * settings.weight_decay,
            *settings.betas,
            settings.eps,
            settings.share,
            AVERAGED=bool(tensors.averages),
            FOURS=_in_fours(places, sizes),
            BLOCK=_BLOCK,
            BLOCKS=_BLOCKS,
            num_warps=4,
        )


def _in_fours(places: Sequence[list[int]], sizes: Sequence[int]) -> bool:
    """Whether threads can move four numbers at a time: all begin at 16 bytes, and none ends in between."""
    return all(place % 16 == 0 for each in places for place in each) and all(size % 4 == 0 for size in sizes)


@lru_cache(maxsize=8)
def _stretches(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Of every stretch, whose it is and where it begins."""
    found = [(index, first) for index, size in enumerate(sizes) for first in range(0, size, _STRETCH)]
    whose, firsts = zip(*found, strict=True)
    return _numbers([list(whose)], device), _numbers([list(firsts)], device), len(found)


def _numbers(rows: Sequence[list[int]], device: torch.device) -> Tensor:
    made = torch.tensor(rows, dtype=torch.int64)
    # From anywhere else a copy would wait until the device has done all it was asked before.
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)


@triton.jit(do_not_specialize=["num_tensors"])
def _adamw(
    table,
    whose,
    firsts,
    rates,
    roots,
    factor,
    left_out,
    num_tensors,
    kept,
    beta1,
    beta2,
    eps,
    share,
    AVERAGED: tl.constexpr,
    FOURS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    if tl.load(left_out).to(tl.int32) == 0:
        tensor = tl.load(whose + tl.program_id(0))
        first = tl.multiple_of(tl.load(firsts + tl.program_id(0)), BLOCK)
        weights = _place(table, 0, num_tensors, tensor, FOURS) + first
        gradients = _place(table, 1, num_tensors, tensor, FOURS) + first
        means = _place(table, 2, num_tensors, tensor, FOURS) + first
        squares = _place(table, 3, num_tensors, tensor, FOURS) + first
        # What is switched off is never followed.
        averages = weights
        if AVERAGED:
            averages = _place(table, 4, num_tensors, tensor, FOURS) + first
        left = tl.load(table + (4 + AVERAGED) * num_tensors + tensor) - first
        if FOURS:
            left = tl.multiple_of(left, 4)
        rate = tl.load(rates + tensor)
        root = tl.load(roots + tensor)
        scale = tl.load(factor)
        for block in range(BLOCKS):
            places = block * BLOCK + tl.arange(0, BLOCK)
            inside = places < left
            gradient = tl.load(gradients + places, mask=inside, other=0.0) * scale
            mean = tl.load(means + places, mask=inside, other=0.0)
            square = tl.load(squares + places, mask=inside, other=0.0)
            weight = tl.load(weights + places, mask=inside, other=0.0)
            average = weight
            if AVERAGED:
                average = tl.load(averages + places, mask=inside, other=0.0)
            mean += (1 - beta1) * (gradient - mean)
            square += (1 - beta2) * (gradient * gradient - square)
            weight = weight * kept - rate * mean / (tl.sqrt(square) / root + eps)
            tl.store(means + places, mean, mask=inside)
            tl.store(squares + places, square, mask=inside)
            tl.store(weights + places, weight, mask=inside)
            if AVERAGED:
                tl.store(averages + places, average + share * (weight - average), mask=inside)


@triton.jit
def _place(table, row, num_tensors, tensor, FOURS: tl.constexpr):
    place = tl.load(table + row * num_tensors + tensor).to(tl.pointer_type(tl.float32))
    if FOURS:
        place = tl.multiple_of(place, 16)
    return place
