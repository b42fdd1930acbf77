"""Where an image's randomness comes from: one seed per image, drawn on the CPU.

An image's noise depends on its own seed and nothing else, so batch size, position in the batch and device do
not change which picture it is. Knows nothing of samplers, schedules or models.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MAX_SEED = 2**64 - 1


class NoiseStream:
    """Standard normal noise for a batch of images: first the initial latents, then whatever samplers draw.

    Give samplers `stream.next`. The rows of a batch are independent streams: a batch run whole and the same
    batch run in parts see the same noise.

    torch's CPU generator (Mersenne Twister) reads only the low 32 bits of a seed. We keep that, as a seed
    then gives the same latents as in other programs built on torch; so seeds 2**32 apart are one picture.
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
        """The first draw of every image: its starting noise. Can be taken once."""
        if self._initial_drawn:
            raise ValueError(
                "initial noise was already drawn; call initial() once and before next(), or make a new stream"
            )
        self._initial_drawn = True
        return self._draw()

    def next(self) -> Tensor:
        """The next draw of every image. Sampler noise is the same whether or not initial() was used."""
        if not self._initial_drawn:
            self.initial()
        return self._draw()

    def _draw(self) -> Tensor:
        # From pinned memory the copy overlaps with what the GPU is doing; the CPU does not wait for it.
        pinned = self._device.type == "cuda"
        host = torch.empty(
            (len(self._generators), *self._shape), dtype=torch.float32, device="cpu", pin_memory=pinned
        )
        for row, generator in zip(host, self._generators, strict=True):
            row.normal_(generator=generator)
        return host.to(self._device, non_blocking=pinned)


def add_scaled_noise(clean: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """The clean latents at noise level sigma: where image-to-image starts."""
    return clean + noise * sigma


def starts_from_pure_noise(noise: Tensor, sigma: float) -> Tensor:
    """Where text-to-image starts: noise with the variance that noised latents of unit variance have at sigma.

    The model then sees exactly `noise` as its scaled input, as it did at the last training timestep.
    """
    return noise * math.sqrt(sigma**2 + 1.0)
