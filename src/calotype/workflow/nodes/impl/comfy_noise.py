"""Draws the noise of a batch as ComfyUI does: from one stream on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MAX_SEED = 2**64 - 1


def initial_noise(shape: Sequence[int], seed: int, places: Sequence[int] | None = None) -> Tensor:
    """The initial noise of a batch. `places` are the indices of its rows in the seed's batch."""
    generator = torch.Generator().manual_seed(seed)
    if places is None:
        return torch.randn(tuple(shape), generator=generator)
    # Drawn one by one from the first, so that an image's noise is the same as in the whole batch.
    drawn = {
        place: torch.randn((1, *shape[1:]), generator=generator)
        for place in range(max(places, default=-1) + 1)
    }
    return torch.cat([drawn[place] for place in places])


def later_noise(shape: Sequence[int], seed: int, device: torch.device) -> Callable[[], Tensor]:
    """The noise that a sampler draws during a run: from a separate stream with the next seed."""
    generator = torch.Generator().manual_seed((seed + 1) & MAX_SEED)
    return lambda: torch.randn(tuple(shape), generator=generator).to(device)
