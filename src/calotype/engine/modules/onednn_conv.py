"""Convolutions of what is compiled for a CPU, by oneDNN, where it is twice as fast as MKL.

Its own are so fast there that Winograd's method pays only if a compiler makes one pass over memory of the
sums. Each tile's points then lie behind each other, and their products are one convolution in groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from calotype.engine.compile.region import Region
from calotype.engine.modules import onednn, ops
from calotype.engine.modules.winograd import (
    MIN_TILES,
    REACH,
    Winograd,
    factors,
    multiply_tiles,
    tiles_of,
    transform_weight,
    winograd_conv,
)


class OneDnnConvs(Winograd):
    """`Operations.convolution`; what is not compiled is done as usual."""

    name = "wide_winograd"

    def __call__(self, x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
        if x.dtype != torch.float32 or not torch.compiler.is_compiling():
            return ops.convolution(x, layer, bias)
        kernels = getattr(layer, self.name, None)
        if kernels is None or tiles_of(x) < MIN_TILES:
            return onednn.convolution(x, layer.weight, bias, layer.padding, layer.stride)
        return winograd_conv(x, layer, bias, partial(_band, kernels=kernels))

    def _at_points(self, weight: Tensor) -> Tensor:
        return transform_weight(weight).transpose(1, 2).flatten(0, 1)[:, :, None, None].contiguous()


@torch.no_grad()
def pack_weights(region: Region) -> list[Tensor]:
    """A region's weights, with the kernels of these convolutions in the order in which oneDNN reads them.

    It would bring them into that order at each call otherwise, which takes a third of what a small
    convolution does.
    """
    weights = region.weights()
    for name, layer in region.module.named_modules():
        # Those of single places are products of matrices.
        if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1):
            inside = f"{name}." if name else ""
            weights[f"{inside}weight"] = onednn.pack_weight(layer.weight, layer.padding, layer.stride)
            at_points = inside + OneDnnConvs.name
            if at_points in weights:
                weights[at_points] = onednn.pack_weight(weights[at_points], parts=REACH**2)
    return list(weights.values())


def _band(tiles: Tensor, kernels: Tensor) -> Tensor:
    """Some rows of tiles, convolved: pictures, rows and columns of pixels, channels."""
    before, after = factors()
    values = _changed(tiles, 0, before)
    made = onednn.concat_weights(values.flatten(3), kernels, REACH**2)
    outputs = _changed(made.unflatten(3, (REACH, REACH, -1)), 3, after)
    return outputs.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _changed(tiles: Tensor, place: int, rows: Sequence[Sequence[float]]) -> Tensor:
    """One side after the other, which stand at `place` before, and just before the channels then."""
    for _ in range(2):
        tiles = torch.stack([multiply_tiles(row, tiles.unbind(place)) for row in rows], dim=-2)
    return tiles
