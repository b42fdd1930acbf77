"""SDXL's residual convolutions in e4m3: `python -m tests.gpu.kernels --only "fp8 convolution"`.

With `--dtype bfloat16` it is meant to take less than a minute: the convolutions with several tiles beside
cuDNN's in bf16, their norms in e4m3 beside those in bf16, and at the end the fastest tiles and what an
evaluation of SDXL would take with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.fp8_conv import (
    Weight,
    fp8_conv,
    quantize_weight,
    runs_kernel_on,
    to_e4m3,
)
from calotype.engine.kernels.fp8_conv import plain as plain_convolution
from calotype.engine.kernels.group_norm import group_norm
from calotype.engine.kernels.quantize import LARGEST
from tests.gpu.cases import EPS, TOLERANCE, Bench, Case, size

# (channels in, channels out, side, how many in an evaluation of SDXL) of its residual blocks.
CONVOLUTIONS = [
    (320, 320, 128, 7),
    (640, 320, 128, 2),
    (960, 320, 128, 1),
    (320, 640, 64, 1),
    (640, 640, 64, 6),
    (960, 640, 64, 1),
    (1280, 640, 64, 1),
    (1920, 640, 64, 1),
    (640, 1280, 32, 1),
    (1280, 1280, 32, 10),
    (1920, 1280, 32, 1),
    (2560, 1280, 32, 2),
]
CONVOLVED = 16
"""Rows: eight pictures with guidance."""
TILED = {(320, 128), (640, 64), (1280, 32), (2560, 32)}
"""Channels in and side of those that are tried with every tile: each of them has to be compiled."""
TILES: list[dict[str, Any]] = [
    {"places": 256, "channels": 128},
    {"places": 256, "channels": 128, "stages": 4},
    {"places": 128, "channels": 256},
    {"places": 128, "channels": 256, "more": 64},
    {"places": 128, "channels": 128, "stages": 4},
    # Two of these on a multiprocessor.
    {"places": 128, "channels": 128, "warps": 4},
    {"places": 256, "channels": 64, "warps": 4, "stages": 2},
]
FACTOR = 4.0
OWN_SUMS = 0.1
"""How far the tensor cores' own sums may be from exact ones, of numbers around one: they keep fewer bits."""


def convolution_cases(bench: Bench) -> Iterator[Case]:
    """Beside torch's own in half precision; then the norms before them, beside those in half precision."""
    for channels, made, side, times in CONVOLUTIONS:
        exact = functional.silu(bench.pictures(CONVOLVED, channels, side))
        wide = (bench.numbers(made, channels, 3, 3) - 0.5) / (9 * channels) ** 0.5
        yield from _convolutions(exact, wide.contiguous(memory_format=torch.channels_last), side, times)
    for channels, side in ((320, 128), (640, 64), (1280, 32), (2560, 32)):
        x, shift = bench.pictures(CONVOLVED, channels, side), bench.numbers(CONVOLVED, channels)
        norm = (*bench.parameters(channels), 32, EPS)
        yield _norm_in_e4m3(f"fp8 convolution's norm {CONVOLVED}×{channels}×{side}²", x, shift, norm)


def _convolutions(exact: Tensor, wide: Tensor, side: int, times: int) -> Iterator[Case]:
    made, channels = wide.shape[:2]
    x, weight = to_e4m3(exact, FACTOR), quantize_weight(wide, FACTOR)
    layer = f"{channels}→{made} at {side}²"

    def eager(_: Tensor) -> Tensor:
        return functional.conv2d(exact, wide, padding=1)

    @cache
    def wanted() -> Tensor:
        return plain_convolution(x, weight, None, torch.float32)

    for name, ours in _ways(weight, exact, tried=(channels, side) in TILED):
        yield Case(
            f"fp8 convolution {layer}, {name}",
            (x,),
            ours,
            eager,
            size(x, weight.values) + size(exact) * made // channels,
            lambda _: wanted(),
            tolerance=OWN_SUMS,
            same_alone=runs_kernel_on(x.device),
            operations=2 * wide.numel() * exact.numel() // channels,
            layer=layer,
            times=times,
            calls=4,
        )


def _ways(weight: Weight, exact: Tensor, *, tried: bool) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """As it is done, and with every tile."""
    yield "as chosen", partial(fp8_conv, weight=weight, bias=None, dtype=exact.dtype)
    if not (tried and runs_kernel_on(exact.device)):
        return
    from calotype.engine.kernels.fp8_conv_triton import Tile, launch

    for each in TILES:
        tile = Tile(**each)
        if exact.shape[1] % tile.depth:
            tile = replace(tile, depth=tile.depth // 2, stages=2 * tile.stages)
        yield str(tile), partial(launch, weight=weight, bias=None, dtype=exact.dtype, tile=tile)


def _norm_in_e4m3(name: str, x: Tensor, shift: Tensor, norm: tuple[Tensor, Tensor, int, float]) -> Case:
    def ours(x: Tensor, shift: Tensor, factor: float | None = FACTOR) -> Tensor:
        return group_norm(x, *norm, silu=True, shift=shift, factor=factor)

    def reference(x: Tensor, shift: Tensor) -> Tensor:
        weight, bias = (each.float() for each in norm[:2])
        normal = functional.group_norm(x + shift[:, :, None, None], 32, weight, bias, EPS)
        return (functional.silu(normal) * FACTOR).clamp(-LARGEST["fp8"], LARGEST["fp8"])

    # Below 2^-6 the steps of e4m3 no longer shrink with the numbers.
    smallest_step = 2.0**-10
    num_bytes = size(x) + x.numel()
    half = partial(ours, factor=None)
    return Case(name, (x, shift), ours, half, num_bytes, reference, tolerance=TOLERANCE + smallest_step)
