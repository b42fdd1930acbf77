"""A glimpse of a latent without decoding it: the best linear guess of its colours.

The guess is fitted to the model's own decoder on smooth random latents, once, when the first preview is asked for; so
it works for any autoencoder and needs no table. Knows nothing of sampling.
"""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from calotype.models.model import Model

FIT_SIZE = 16
FIT_ROWS = 4


class Preview:
    """Latents to small pictures by one matrix."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._matrix: Tensor | None = None

    @torch.inference_mode()
    def images(self, latents: Tensor) -> list[Image.Image]:
        """One picture per latent, a latent pixel a pixel."""
        matrix = self._fitted().to(latents.device)
        ones = torch.ones_like(latents[:, :1])
        colours = torch.einsum("nchw,ck->nkhw", torch.cat([latents.float(), ones], dim=1), matrix)
        values = ((colours.clamp(-1, 1) + 1) * 127.5).to(torch.uint8).permute(0, 2, 3, 1).cpu()
        return [Image.fromarray(row.numpy()) for row in values]

    def _fitted(self) -> Tensor:
        if self._matrix is None:
            self._matrix = self._fit()
        return self._matrix

    def _fit(self) -> Tensor:
        architecture, vae = self._model.architecture, self._model.vae
        parameter = next(vae.parameters())
        generator = torch.Generator().manual_seed(0)
        rows = []
        for size in (1, 2, 4, FIT_SIZE):
            coarse = torch.randn(FIT_ROWS, architecture.latent_channels, size, size, generator=generator)
            rows.append(interpolate(coarse, size=(FIT_SIZE, FIT_SIZE), mode="bilinear"))
        latents = torch.cat(rows).to(parameter.device)
        scale = float(architecture.vae.get("scaling_factor", 0.18215))
        pixels = vae.decode((latents / scale).to(parameter.dtype), return_dict=False)[0].float()
        colours = avg_pool2d(pixels, architecture.vae_factor)
        known = torch.cat([latents, torch.ones_like(latents[:, :1])], dim=1).permute(0, 2, 3, 1).flatten(0, 2)
        return torch.linalg.lstsq(known.cpu(), colours.permute(0, 2, 3, 1).flatten(0, 2).cpu()).solution
