"""Implements the MASK nodes. `tensor_image` defines the layouts."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from calotype.workflow.node_api import Context, Step


def faded(length: int, start: int, whole: int, fade: int) -> Tensor:
    """Weights of a segment, which fade over `fade` positions at ends that are not those of the whole."""
    weights = torch.ones(length)
    rise = (torch.arange(1, fade + 1) / max(1, fade))[:length]
    if start != 0:
        weights[: len(rise)] *= rise
    if start + length < whole:
        weights[length - len(rise) :] *= rise.flip(0)
    return weights


_ITERATIONS_PER_STEP = 8
CHANNELS = ("red", "green", "blue", "alpha")


def solid(_context: Context, value: float, width: int, height: int) -> tuple[Tensor]:
    return (torch.full((1, height, width), value),)


def inverted(_context: Context, mask: Tensor) -> tuple[Tensor]:
    return (1 - mask,)


def as_image(_context: Context, mask: Tensor) -> tuple[Tensor]:
    return (mask.reshape(-1, *mask.shape[-2:], 1).expand(-1, -1, -1, 3),)


def of_image(_context: Context, image: Tensor, channel: str) -> tuple[Tensor]:
    return (image[..., min(CHANNELS.index(channel), image.shape[-1] - 1)],)


def grown(
    _context: Context, mask: Tensor, expand: int, tapered_corners: bool
) -> Generator[Step, None, tuple[Tensor]]:
    """Grow or shrink a mask; each iteration reaches all eight neighbors, or with tapering four."""
    sign = 1 if expand >= 0 else -1
    # Shrinking the mask means growing its complement.
    values = sign * mask.reshape(-1, 1, *mask.shape[-2:])
    # More iterations than from one corner to the other have no effect.
    iterations = min(abs(expand), sum(mask.shape[-2:]))
    for iteration in range(iterations):
        if iteration % _ITERATIONS_PER_STEP == 0:
            yield Step(iteration, iterations)
        if tapered_corners:
            across = max_pool2d(values, (1, 3), 1, (0, 1))
            values = torch.maximum(across, max_pool2d(values, (3, 1), 1, (1, 0)))
        else:
            values = max_pool2d(values, 3, 1, 1)
    return ((sign * values).reshape(-1, *mask.shape[-2:]),)
