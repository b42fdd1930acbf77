"""Kernels that read pictures: norms, of sums and pairs too, and enlarging. Knows nothing of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.add import add as add_alone
from calotype.engine.kernels.group_norm import add_group_norm, group_norm, group_norm_concat
from calotype.engine.kernels.upsample import upsample_nearest2x
from tests.gpu.cases import EPS, Bench, Case, size

# (channels, side, batch sizes): the ends of each UNet, at 512 and 1024 pixels.
PICTURES = [
    (320, 64, (1, 2, 16)),
    (640, 32, (2,)),
    (1280, 16, (2, 16)),
    (1280, 8, (2,)),
    (320, 128, (2, 32)),
    (640, 64, (2, 32)),
    (1280, 32, (2, 32)),
]
# (channels before the skip connection, channels of it, side, batch sizes)
PAIRS = [
    (320, 320, 64, (2, 16)),
    (640, 320, 64, (2,)),
    (1280, 640, 32, (2,)),
    (1280, 1280, 8, (2,)),
    (640, 320, 128, (32,)),
    (1280, 640, 64, (2, 32)),
]


def picture_cases(bench: Bench) -> Iterator[Case]:
    for channels, side, batches in PICTURES:
        weight, bias = bench.parameters(channels)
        for n in batches:
            x, shift = bench.pictures(n, channels, side), bench.numbers(n, channels)

            def shifted(x: Tensor, shift: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                return group_norm(x, w, b, 32, EPS, silu=True, shift=shift)

            def eager(x: Tensor, shift: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                moved = x + shift[:, :, None, None]
                return functional.silu(functional.group_norm(moved, 32, w.to(x), b.to(x), EPS))

            yield Case(f"group norm {n}×{channels}×{side}²", (x, shift), shifted, eager, 2 * size(x))
    for channels, side, n in ((1280, 16, 2), (640, 64, 2), (640, 64, 32)):
        x = bench.pictures(n, channels, side)
        name = f"upsample {n}×{channels}×{side}²"
        yield Case(name, (x,), upsample_nearest2x, _eager_upsample, 5 * size(x))


def _eager_upsample(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0)


def pair_cases(bench: Bench) -> Iterator[Case]:
    for first, second, side, batches in PAIRS:
        weight, bias = bench.parameters(first + second)
        for n in batches:
            a, b = bench.pictures(n, first, side), bench.pictures(n, second, side)

            def ours(a: Tensor, b: Tensor, w: Tensor = weight, bias: Tensor = bias) -> tuple[Tensor, Tensor]:
                return group_norm_concat(a, b, w, bias, 32, EPS, silu=True)

            def eager(a: Tensor, b: Tensor, w: Tensor = weight, bias: Tensor = bias) -> tuple[Tensor, Tensor]:
                joined = torch.cat([a, b], 1)
                normed = functional.group_norm(joined, 32, w.to(a), bias.to(a), EPS)
                return functional.silu(normed), joined

            yield Case(f"group norm {n}×({first}+{second})×{side}²", (a, b), ours, eager, 3 * size(a, b))


def sum_cases(bench: Bench) -> Iterator[Case]:
    """Beside the sum in a kernel of its own and the norm of it, which must say the same."""
    for channels, side, batches in PICTURES:
        for n in batches:
            x, addend = bench.pictures(n, channels, side), bench.pictures(n, channels, side)
            name = f"group norm of sum {n}×{channels}×{side}²"
            yield _of_sum(name, bench, (x, addend), 5 * size(x))
    for first, second, side, batches in PAIRS:
        for n in batches:
            a, addend, b = (bench.pictures(n, width, side) for width in (first, first, second))
            name = f"group norm of sum {n}×({first}+{second})×{side}²"
            yield _of_sum(name, bench, (a, addend, b), 4 * size(a, b) + size(a))


def _of_sum(name: str, bench: Bench, inputs: tuple[Tensor, ...], num_bytes: int) -> Case:
    first = inputs[0].shape[1]
    channels = sum(each.shape[1] for each in (inputs[0], *inputs[2:]))
    norm, extra = (*bench.parameters(channels), 32, EPS), bench.numbers(first)

    def ours(x: Tensor, addend: Tensor, *skip: Tensor) -> tuple[Tensor, Tensor]:
        if skip:
            return group_norm_concat(x, skip[0], *norm, silu=True, addend=addend, extra=extra)
        return add_group_norm(x, addend, extra, *norm, silu=True)

    def apart(x: Tensor, addend: Tensor, *skip: Tensor) -> tuple[Tensor, Tensor]:
        total = add_alone(x.permute(0, 2, 3, 1), addend.permute(0, 2, 3, 1), extra).permute(0, 3, 1, 2)
        if skip:
            return group_norm_concat(total, skip[0], *norm, silu=True)
        return group_norm(total, *norm, silu=True), total

    def reference(x: Tensor, addend: Tensor, *skip: Tensor) -> tuple[Tensor, Tensor]:
        # The sum is rounded to the dtype of the pictures, whatever is normalised then.
        total = (x + addend + extra.float()[:, None, None]).to(extra).float()
        joined = torch.cat([total, *skip], 1)
        weight, bias = (each.float() for each in norm[:2])
        return functional.silu(functional.group_norm(joined, 32, weight, bias, EPS)), joined

    return Case(name, inputs, ours, apart, num_bytes, reference, exactly=True)
