"""What a sampler says to whoever runs it: the question it asks the model, and the types around it.

A sampler is a generator function. It yields a `DenoiseQuery` each time it needs the model's estimate of the
clean latent, is sent that estimate, and returns the final latent. So the loop belongs to the caller: a server
holds many generators, gathers their queries, answers all of them with one UNet call (one timestep per row)
and sends each its part. Samplers that evaluate the model twice a step batch with those that evaluate it
once, and requests join and leave between any two evaluations.

The space is variance-exploding: x = clean + sigma * noise. Knows nothing of models, prompts or guidance.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple

from torch import Tensor


class DenoiseQuery(NamedTuple):
    """A request for the model's estimate of the clean latent behind `x`."""

    x: Tensor
    """Noisy latents, all at the same noise level. The sampler never writes into it, nor may the caller."""
    sigma: float
    """Standard deviation of the noise in `x`: a host number, so that reading it waits for no device."""
    step: int
    """Index of the schedule interval this evaluation belongs to, from 0. Several queries may share one."""


SamplerGenerator = Generator[DenoiseQuery, Tensor, Tensor]
"""A sampler under way: yields queries, is sent denoised latents, returns the last latent."""

NoiseSource = Callable[[], Tensor]
"""Gives fresh standard normal noise, shaped like x and on its device, each time it is called."""

Sampler = Callable[..., SamplerGenerator]
"""`(x, sigmas, noise, **options) -> Sampling`. Options are keyword-only and have defaults."""
