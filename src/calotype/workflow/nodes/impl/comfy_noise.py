"""A batch's randomness as ComfyUI draws it: all from one stream on the CPU. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MAX_SEED = 2**64 - 1


def initial_noise(shape: Sequence[int], seed: int, places: Sequence[int] | None = None) -> Tensor:
    """The first noise of a batch. `places` says which pictures of the seed's batch its rows are."""
    generator = torch.Generator().manual_seed(seed)
    if places is None:
        return torch.randn(tuple(shape), generator=generator)
    # One by one from the first, so that a picture's noise is what it was in the whole batch.
    drawn = {
        place: torch.randn((1, *shape[1:]), generator=generator)
        for place in range(max(places, default=-1) + 1)
    }
    return torch.cat([drawn[place] for place in places])


def later_noise(shape: Sequence[int], seed: int, device: torch.device) -> Callable[[], Tensor]:
    """What a sampler draws on its way: from a stream of its own, the next seed's."""
    generator = torch.Generator().manual_seed((seed + 1) & MAX_SEED)
    return lambda: torch.randn(tuple(shape), generator=generator).to(device)
