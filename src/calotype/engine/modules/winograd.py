"""3×3 convolutions by Winograd's method: a quarter of the multiplications, for sums before and after them.

A tile of 4×4 outputs depends on 6×6 inputs. Both become polynomials that are known by their values at six
points (0, 1, −1, 1/2, −2 and infinity, of those tried the set that loses least); there the convolution is a
product, one matrix product of all tiles for each pair of points (Lavin and Gray 2015, arXiv:1509.09308). Of
a layer's weights only their values at the points are needed, made once. Knows nothing of networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional

from calotype.engine.modules.ops import convolution

TILE = 4
POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)
REACH = TILE + 2
"""Inputs along one side that a tile of outputs depends on."""
MAX_BYTES = 16 * 2**20
"""Of a layer's transformed weights. They take four times the room, and reading more costs what is saved."""
BAND_BYTES = 32 * 2**20
"""Of one band of tiles at the points: of a large picture all of them would be several times the picture."""
MIN_TILES = 32
"""Below, reading the weights is what takes the time."""


class Winograd:
    """`Operations.convolution` for layers that were prepared; others are done as usual."""

    name = "winograd"
    """Of what layers are given."""

    def __init__(self) -> None:
        self._layers: WeakSet[nn.Conv2d] = WeakSet()

    # What is made while pictures are decoded is still to be changed later, which inference mode would forbid.
    @torch.inference_mode(False)
    @torch.no_grad()
    def prepare(self, network: nn.Module) -> None:
        """Transform the weights of all layers that it suits. They become buffers that are in no file."""
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d) and supports(layer):
                # Made before anybody compiles what uses them.
                transforms(layer.weight.dtype, layer.weight.device)
                factors()
                layer.register_buffer(self.name, self._at_points(layer.weight), persistent=False)
                self._layers.add(layer)

    @torch.no_grad()
    def refresh(self) -> None:
        """Weights have changed; theirs change in place."""
        for layer in self._layers:
            getattr(layer, self.name).copy_(self._at_points(layer.weight))

    def __call__(self, x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
        weight = getattr(layer, self.name, None)
        if weight is None or tiles_of(x) < MIN_TILES:
            return convolution(x, layer, bias)
        return winograd_conv(x, layer, bias, partial(_band, weight=weight))

    def _at_points(self, weight: Tensor) -> Tensor:
        return transform_weight(weight)


def supports(layer: nn.Conv2d) -> bool:
    plain = (layer.kernel_size, layer.stride, layer.padding) == ((3, 3), (1, 1), (1, 1))
    plain = plain and layer.groups == 1 and layer.dilation == (1, 1)
    # Half precision would lose too much between the sums.
    return plain and layer.weight.dtype == torch.float32 and transformed_bytes(layer) <= MAX_BYTES


def transformed_bytes(layer: nn.Conv2d) -> int:
    return REACH**2 * layer.in_channels * layer.out_channels * layer.weight.element_size()


def transform_weight(weight: Tensor) -> Tensor:
    """(36, channels in, channels out)."""
    _, of_weights, _ = _matrices()
    factors = of_weights.to(weight.device)
    values = torch.einsum("ai,bj,ocij->abco", factors, factors, weight.double())
    return values.flatten(0, 1).to(weight.dtype).contiguous()


def tiles_of(picture: Tensor) -> int:
    n, _, height, width = picture.shape
    return n * -(-height // TILE) * -(-width // TILE)


def winograd_conv(
    picture: Tensor, layer: nn.Conv2d, bias: Tensor | None, band: Callable[[Tensor], Tensor]
) -> Tensor:
    """`band` makes some rows of tiles the pixels they are to be."""
    n, channels, height, width = picture.shape
    down, across = -(-height // TILE), -(-width // TILE)
    edges = (0, 0, 1, 1 + across * TILE - width, 1, 1 + down * TILE - height)
    padded = functional.pad(picture.permute(0, 2, 3, 1), edges).contiguous()
    by_picture, by_row, by_place, _ = padded.stride()
    tiles = padded.as_strided(
        (REACH, REACH, n, down, across, channels),
        (by_row, by_place, by_picture, TILE * by_row, TILE * by_place, 1),
    )
    a_row = REACH**2 * n * across * max(channels, layer.out_channels) * picture.element_size()
    at_once = max(1, BAND_BYTES // a_row)
    if at_once >= down:
        made = band(tiles)[:, :height, :width].contiguous()
    else:
        made = picture.new_empty(n, height, width, layer.out_channels)
        for row in range(0, down, at_once):
            rows = made[:, row * TILE : (row + at_once) * TILE]
            rows.copy_(band(tiles[:, :, :, row : row + at_once])[:, : rows.shape[1], :width])
    return (made if bias is None else made.add_(bias)).permute(0, 3, 1, 2)


def _band(tiles: Tensor, weight: Tensor) -> Tensor:
    """Some rows of tiles, convolved: pictures, rows and columns of pixels, channels."""
    _, _, n, down, across, channels = tiles.shape
    # A compiler makes one pass over memory of sums; by themselves they would be dozens, and a product one.
    changed = _by_sums if torch.compiler.is_compiling() else _by_a_product
    values = changed(tiles, 0).reshape(REACH**2, n * down * across, channels)
    products = torch.bmm(values, weight)
    outputs = changed(products.view(REACH, REACH, n, down, across, -1), 1)
    return outputs.permute(2, 3, 0, 4, 1, 5).reshape(n, down * TILE, across * TILE, -1)


def _by_a_product(tiles: Tensor, which: int) -> Tensor:
    """Tiles of inputs at the points (0), or of values there as outputs (1): both sides at once."""
    both = transforms(tiles.dtype, tiles.device)[which]
    side = math.isqrt(len(both))
    return (both @ tiles.reshape(REACH**2, -1)).view(side, side, *tiles.shape[2:])


def _by_sums(tiles: Tensor, which: int) -> Tensor:
    """The same, one side after the other: a quarter of the multiplications."""
    rows = factors()[which]
    half = torch.stack([multiply_tiles(row, tiles.unbind(0)) for row in rows])
    return torch.stack([multiply_tiles(row, half.unbind(1)) for row in rows], dim=1)


def multiply_tiles(row: Sequence[float], parts: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, [factor * part for factor, part in zip(row, parts, strict=True) if factor])


@cache
def transforms(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """What makes values at the points of tiles of inputs, and tiles of outputs of values; for both sides."""
    of_inputs, _, of_outputs = _matrices()
    before, after = (torch.kron(each, each).to(device, dtype) for each in (of_inputs, of_outputs))
    return before, after


@cache
def factors() -> tuple[list[list[float]], list[list[float]]]:
    """What makes values at the points of a row of inputs, and a row of outputs of values."""
    of_inputs, _, of_outputs = _matrices()
    # Of an inverse what should be nothing is nearly nothing.
    return of_inputs.round(decimals=12).tolist(), of_outputs.tolist()


@cache
def _matrices() -> tuple[Tensor, Tensor, Tensor]:
    """Of inputs, of weights, of outputs; along one side, in double precision.

    The values of a product of polynomials of degree five at six points say what it is; the transpose of that
    (inputs in the place of the product) is a convolution.
    """
    values = torch.tensor([[p**power for power in range(REACH)] for p in POINTS], dtype=torch.float64)
    at_infinity = torch.zeros(1, REACH, dtype=torch.float64)
    at_infinity[0, -1] = 1

    def of_degree(number: int) -> Tensor:
        last = torch.zeros(1, number, dtype=torch.float64)
        last[0, -1] = 1
        return torch.cat([values[:, :number], last])

    of_inputs = torch.linalg.inv(torch.cat([values, at_infinity])).T.contiguous()
    return of_inputs, of_degree(3), of_degree(TILE).T.contiguous()
