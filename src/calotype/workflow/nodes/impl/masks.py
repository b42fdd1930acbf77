"""MASK nodes. Layouts are those of `pictures`."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from calotype.workflow.node_api import Context, Step


def faded(length: int, start: int, whole: int, fade: int) -> Tensor:
    """How much each place of a stretch counts: less towards an end that is not the whole's, over `fade`."""
    share = torch.ones(length)
    rise = (torch.arange(1, fade + 1) / max(1, fade))[:length]
    if start != 0:
        share[: len(rise)] *= rise
    if start + length < whole:
        share[length - len(rise) :] *= rise.flip(0)
    return share


_TURNS_A_STEP = 8
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
    """Larger by so many pixels, or smaller; a step reaches all eight neighbours, or with tapering four."""
    sign = 1 if expand >= 0 else -1
    # Shrinking what is there is growing what is not.
    values = sign * mask.reshape(-1, 1, *mask.shape[-2:])
    # More than from one corner to the other changes nothing.
    turns = min(abs(expand), sum(mask.shape[-2:]))
    for turn in range(turns):
        if turn % _TURNS_A_STEP == 0:
            yield Step(turn, turns)
        if tapered_corners:
            across = max_pool2d(values, (1, 3), 1, (0, 1))
            values = torch.maximum(across, max_pool2d(values, (3, 1), 1, (1, 0)))
        else:
            values = max_pool2d(values, 3, 1, 1)
    return ((sign * values).reshape(-1, *mask.shape[-2:]),)
