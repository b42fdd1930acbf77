"""Defines the protocol between a sampler and its caller: the query for a denoised latent and related types.

A sampler is a generator function. It yields a `DenoiseQuery` each time it needs the model's estimate of the
clean latent, receives that estimate, and returns the final latent. So the caller owns the loop: a server
holds many generators, collects their queries, evaluates all of them in one UNet call (one timestep per row)
and sends each generator its rows. Samplers with two evaluations per step batch with those with one, and
requests join and leave between any two evaluations.

The space is variance-exploding: x = clean + sigma * noise.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple

from torch import Tensor


class DenoiseQuery(NamedTuple):
    """A request for the model's estimate of the clean latent behind `x`."""

    x: Tensor
    """Noisy latents, all at the same noise level. Neither the sampler nor the caller may write to it."""
    sigma: float
    """Standard deviation of the noise in `x`: a host number, so reading it does not wait for the device."""
    step: int
    """Index of this evaluation's schedule interval, from 0. Several queries may share one."""


SamplerGenerator = Generator[DenoiseQuery, Tensor, Tensor]
"""A running sampler: yields queries, receives denoised latents, returns the final latent."""

NoiseSource = Callable[[], Tensor]
"""Returns new standard normal noise with the shape and device of x on each call."""

Sampler = Callable[..., SamplerGenerator]
"""`(x, sigmas, noise, **options) -> SamplerGenerator`. Options are keyword-only and have defaults."""
