"""The randomness of training: every sample has its own, from the run's seed and its place in the run.

So which rank or micro-batch a sample falls to does not change its noise, two ranks train what one would with
twice the batch, and a resumed run needs no saved generator. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = 2**64 - 1


@dataclass(frozen=True)
class Draws:
    """One row per sample."""

    noise: Tensor
    posterior: Tensor
    """Noise for the autoencoder's distribution."""
    offset: Tensor
    """One number per channel, for offset noise."""
    timesteps: Tensor
    drop_caption: Tensor


def draw(
    run_seed: int,
    positions: Sequence[int],
    latent_shape: tuple[int, int, int],
    *,
    num_timesteps: int,
    caption_dropout: float,
    device: torch.device,
) -> Draws:
    """The draws of the samples at these places in the run, made on `device`."""
    count = len(positions)
    noise = torch.empty(count, 2, *latent_shape, device=device)
    offset = torch.empty(count, latent_shape[0], device=device)
    uniform = torch.empty(count, 2, device=device)
    generator = torch.Generator(device)
    for row, position in enumerate(positions):
        generator.manual_seed(_mixed(run_seed, position))
        noise[row].normal_(generator=generator)
        offset[row].normal_(generator=generator)
        uniform[row].uniform_(generator=generator)
    timesteps = (uniform[:, 0] * num_timesteps).long().clamp_(max=num_timesteps - 1)
    return Draws(noise[:, 0], noise[:, 1], offset, timesteps, uniform[:, 1] < caption_dropout)


def _mixed(seed: int, position: int) -> int:
    """SplitMix64 (Steele et al. 2014): neighbouring positions get unrelated seeds."""
    value = (seed * 0x9E3779B97F4A7C15 + (position + 1) * 0xD1B54A32D192ED03) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
