"""Previews a latent without decoding it, by a linear map from latent channels to colors.

The map is fitted to the model's own decoder on smooth random latents, once, at the first preview; so it works
for any VAE and needs no table.
"""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from calotype.engine.vae import Decode, Vae, decode_with_diffusers
from calotype.models.model import Model

FIT_SIDE = 16
FIT_ROWS = 4


class Preview:
    """Maps latents to small images with one matrix."""

    def __init__(self, model: Model, decode: Decode = decode_with_diffusers) -> None:
        self._model, self._decode = model, decode
        self._matrix: Tensor | None = None

    @torch.inference_mode()
    def images(self, latents: Tensor) -> list[Image.Image]:
        """One image per latent, with one pixel per latent pixel."""
        if self._matrix is None:
            self._matrix = self._fit().to(latents.device)
        colors = torch.einsum("nchw,ck->nkhw", _with_ones(latents.float()), self._matrix)
        values = ((colors.clamp(-1, 1) + 1) * 127.5).to(torch.uint8).permute(0, 2, 3, 1).cpu()
        return [Image.fromarray(row.numpy()) for row in values]

    def _fit(self) -> Tensor:
        """Fit by least squares from latents of several smoothnesses to their decoded colors."""
        architecture = self._model.architecture
        generator = torch.Generator().manual_seed(0)
        rows = []
        for side in (1, 2, 4, FIT_SIDE):
            coarse = torch.randn(FIT_ROWS, architecture.latent_channels, side, side, generator=generator)
            rows.append(interpolate(coarse, size=(FIT_SIDE, FIT_SIDE), mode="bilinear"))
        latents = torch.cat(rows)
        pixels = Vae(self._model, self._decode).decode(latents.to(self._model.device), tiled=False)
        colors = avg_pool2d(pixels, architecture.vae_factor).cpu()
        return torch.linalg.lstsq(_by_pixel(_with_ones(latents)), _by_pixel(colors)).solution


def _with_ones(latents: Tensor) -> Tensor:
    return torch.cat([latents, torch.ones_like(latents[:, :1])], dim=1)


def _by_pixel(maps: Tensor) -> Tensor:
    return maps.permute(0, 2, 3, 1).flatten(0, 2)
