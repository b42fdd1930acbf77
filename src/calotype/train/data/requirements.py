"""The model's requirements on its data: sizes, widths and device."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DataRequirements:
    """The shapes that every batch must have, and its device."""

    resolution: int
    """Side of a square image; with buckets, the side of a square with the area of every bucket."""
    latent_channels: int
    vae_factor: int
    """Pixels per latent along one side."""
    context_tokens: int
    context_width: int
    pooled_width: int | None
    device: torch.device
    vae_hash: str | None = None
    """Identity of the autoencoder; precomputed latents of another are refused. None skips the check."""
    text_hash: str | None = None
    """Identity of the text encoders, likewise."""

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """The shape for a square image."""
        side = self.resolution // self.vae_factor
        return (self.latent_channels, side, side)

    @property
    def context_shape(self) -> tuple[int, int]:
        return (self.context_tokens, self.context_width)
