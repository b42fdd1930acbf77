"""Draws the noise of images on the CPU, from one seed per image.

An image's noise depends only on its own seed, so batch size, position in the batch and device do not change
the image.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MAX_SEED = 2**64 - 1


class NoiseStream:
    """Standard normal noise for a batch of images: first the initial latents, then the samplers' draws.

    Pass `stream.next` to samplers. The rows of a batch are independent streams: a batch gets the same noise
    whether it runs as a whole or in parts.

    torch's CPU generator (Mersenne Twister) reads only the low 32 bits of a seed. This stays so that a seed
    gives the same latents as in other programs based on torch; seeds 2**32 apart give the same image.
    """

    def __init__(
        self, seeds: Sequence[int], shape: tuple[int, ...], device: torch.device | str = "cpu"
    ) -> None:
        """`shape` is one image's, without the batch dimension."""
        if not seeds:
            raise ValueError("a noise stream needs at least one seed, got none; pass one seed per image")
        for seed in seeds:
            if not 0 <= seed <= _MAX_SEED:
                raise ValueError(f"seed {seed} is outside 0..{_MAX_SEED}; use an unsigned 64-bit integer")
        self._generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        self._shape = shape
        self._device = torch.device(device)
        self._initial_drawn = False

    def initial(self) -> Tensor:
        """The first draw of every image: its initial noise. It can be drawn only once."""
        if self._initial_drawn:
            raise ValueError(
                "initial noise was already drawn; call initial() once and before next(), or make a new stream"
            )
        self._initial_drawn = True
        return self._draw()

    def next(self) -> Tensor:
        """The next draw of every image. Sampler noise is the same whether or not initial() was called."""
        if not self._initial_drawn:
            self.initial()
        return self._draw()

    def _draw(self) -> Tensor:
        # A copy from pinned memory overlaps with GPU work, and the CPU does not wait for it.
        pinned = self._device.type == "cuda"
        host = torch.empty(
            (len(self._generators), *self._shape), dtype=torch.float32, device="cpu", pin_memory=pinned
        )
        for row, generator in zip(host, self._generators, strict=True):
            row.normal_(generator=generator)
        return host.to(self._device, non_blocking=pinned)


def add_scaled_noise(clean: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Add noise of level sigma to clean latents: the start of image-to-image."""
    return clean + noise * sigma


def starts_from_pure_noise(noise: Tensor, sigma: float) -> Tensor:
    """The start of text-to-image: noise with the variance that noised latents of unit variance have at sigma.

    The model's scaled input is then exactly `noise`, as at the last training timestep.
    """
    return noise * math.sqrt(sigma**2 + 1.0)
