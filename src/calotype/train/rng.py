"""The randomness of training: every sample has its own, from the run's seed and its place in the run.

So which rank or micro-batch a sample falls to does not change its noise, two ranks train what one would with
twice the batch, and a resumed run needs no saved generator. The numbers are a function of counters, made for
a whole batch at once and alike on every device; torch's generators would have to be seeded sample by sample,
which keeps a small model waiting. Knows nothing of models.
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
    """One row per sample."""

    noise: Tensor
    posterior: Tensor
    """Noise for the autoencoder's distribution."""
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
    """The draws of the samples at these places in the run, made on `device`."""
    count, channels, size = len(positions), latent_shape[0], math.prod(latent_shape)
    # One pair of uniform numbers for timestep and caption, then pairs that become normal.
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
    """Pairs of whole numbers below 2³² for every key: SplitMix64 (Steele et al. 2014) from the key on."""
    places = torch.arange(1, count + 1, device=keys.device)
    state = keys[:, None] + places * _signed(_GOLDEN)
    state = (state ^ _shifted(state, 30)) * _signed(_FIRST)
    state = (state ^ _shifted(state, 27)) * _signed(_SECOND)
    state = state ^ _shifted(state, 31)
    return _shifted(state, 32), state & (2**32 - 1)


def _normal(first: Tensor, second: Tensor) -> Tensor:
    """Unit normal numbers, two for every pair (Box and Muller 1958)."""
    # 24 bits are what single precision holds; in the middle of its interval none is zero.
    radius = (((first >> 8) + 0.5) * 2.0**-24).log().mul(-2).sqrt()
    angle = (second >> 8) * (2 * math.pi * 2.0**-24)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)


def _signed(value: int) -> int:
    """The same 64 bits, as torch holds them."""
    return value - 2**64 if value >= 2**63 else value


def _shifted(value: Tensor, bits: int) -> Tensor:
    """To the right with zeros coming in; torch repeats the sign."""
    return (value >> bits) & (2 ** (64 - bits) - 1)
