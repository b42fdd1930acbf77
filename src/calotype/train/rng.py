"""Counter-based random numbers of training: each sample's depend only on the seed and its position.

So the rank or micro-batch of a sample does not change its noise, two ranks train what one rank trains with
twice the batch, and a resumed run needs no saved generator. The numbers are a function of counters, computed
for a whole batch at once and identical on every device; torch's generators would have to be seeded for each
sample, which slows a small model down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.train.data.hashing import mixed

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class SampleNoise:
    """The random numbers of a batch, one row per sample."""

    noise: Tensor
    posterior: Tensor
    """Noise to sample from the autoencoder's distribution."""
    offset: Tensor
    """One number per channel, for offset noise."""
    timesteps: Tensor
    drop_caption: Tensor


def sample_noise(
    run_seed: int,
    positions: Sequence[int],
    latent_shape: tuple[int, int, int],
    *,
    num_timesteps: int,
    caption_dropout: float,
    device: torch.device,
) -> SampleNoise:
    """The random numbers of the samples at these positions of the run, computed on `device`."""
    count, channels, size = len(positions), latent_shape[0], math.prod(latent_shape)
    # One pair of uniform numbers for timestep and caption dropout, then pairs that become normal.
    num_pairs = 1 + -(-(2 * size + channels) // 2)
    keys = torch.tensor([_signed(mixed(run_seed, position)) for position in positions], device=device)
    first, second = _uniform_pairs(keys, num_pairs)
    timesteps = (first[:, 0] * num_timesteps) >> 32
    drop = second[:, 0] < int(caption_dropout * 2**32)
    normal = _normal(first[:, 1:], second[:, 1:])
    noise, posterior, offset = normal[:, : 2 * size + channels].split([size, size, channels], dim=1)
    shape = (count, *latent_shape)
    return SampleNoise(noise.reshape(shape), posterior.reshape(shape), offset, timesteps, drop)


def _uniform_pairs(keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Pairs of integers below 2³² for every key: SplitMix64 (Steele et al. 2014) starting from the key."""
    counters = torch.arange(1, count + 1, device=keys.device)
    state = keys[:, None] + counters * _signed(_GOLDEN)
    state = (state ^ _logical_shift_right(state, 30)) * _signed(_FIRST)
    state = (state ^ _logical_shift_right(state, 27)) * _signed(_SECOND)
    state = state ^ _logical_shift_right(state, 31)
    return _logical_shift_right(state, 32), state & (2**32 - 1)


def _normal(first: Tensor, second: Tensor) -> Tensor:
    """Standard normal numbers, two for every pair (Box and Muller 1958)."""
    # fp32 holds 24 bits; the midpoint of each interval is used, so that none is zero.
    radius = (((first >> 8) + 0.5) * 2.0**-24).log().mul(-2).sqrt()
    angle = (second >> 8) * (2 * math.pi * 2.0**-24)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)


def _signed(value: int) -> int:
    """The same 64 bits as a signed integer, as torch holds them."""
    return value - 2**64 if value >= 2**63 else value


def _logical_shift_right(value: Tensor, bits: int) -> Tensor:
    """A logical right shift; torch's shift is arithmetic."""
    return (value >> bits) & (2 ** (64 - bits) - 1)
