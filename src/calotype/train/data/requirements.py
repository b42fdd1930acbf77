"""What the model wants of its data: sizes, widths, device. Filled in by whoever knows the model."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DataRequirements:
    """Shapes that every batch has to have, and where it is wanted."""

    resolution: int
    """Side of a square picture; with buckets, the side of a square with the area every bucket has."""
    latent_channels: int
    vae_factor: int
    """Pixels to a latent, along one side."""
    context_tokens: int
    context_width: int
    pooled_width: int | None
    device: torch.device
    vae_hash: str | None = None
    """Identity of the autoencoder; precomputed latents of another are refused. None does not check."""
    text_hash: str | None = None
    """Identity of the text encoders, likewise."""

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Of a square picture."""
        side = self.resolution // self.vae_factor
        return (self.latent_channels, side, side)

    @property
    def context_shape(self) -> tuple[int, int]:
        return (self.context_tokens, self.context_width)
