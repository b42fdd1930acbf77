"""Train the autoencoder to reconstruct images through latents close to the standard normal distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.compile import apply_vae_passes, compiled_function
from calotype.train.data.types import Batch, Text
from calotype.train.rng import sample_noise
from calotype.train.tasks.base import LossFn, attention_of, autocast_of
from calotype.train.tasks.vae_loss import psnr, vae_loss


class Restored(nn.Module):
    """Encoder, sampling and decoder in one module: ranks synchronize gradients per module."""

    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, pixels: Tensor, posterior: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The images reconstructed from sampled latents, and the latents' mean and log variance."""
        moments = self.vae.encode(pixels.to(self.vae.dtype)).latent_dist
        mean, logvar = moments.mean.float(), moments.logvar.float()
        latents = mean + torch.exp(0.5 * logvar) * posterior
        restored = self.vae.decode(latents.to(self.vae.dtype), return_dict=False)[0]
        return restored.float(), mean, logvar


class VaeTask:
    """The whole autoencoder."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        self.model = model
        self._recipe = recipe
        # These are not used here, and their memory makes room for larger batches.
        for idle in (model.unet, *model.text_encoders):
            nn.Module.to(idle, "meta")
        vae = model.vae.requires_grad_(True).train()
        if recipe.model.gradient_checkpointing:
            vae.enable_gradient_checkpointing()
        apply_vae_passes(vae, recipe)
        self._network = Restored(vae)
        self._loss = compiled_function(vae_loss, recipe)
        self._psnr: list[Tensor] = []

    @property
    def network(self) -> nn.Module:
        return self._network

    def parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.model.vae.named_parameters())

    def use_empty_text(self, text: Text | None) -> None:
        """Captions are not used."""

    def prepare(self, batch: Batch, positions: Sequence[int]) -> LossFn:
        pixels = batch.pixels
        assert pixels is not None
        architecture = self.model.architecture
        height, width = (side // architecture.vae_factor for side in pixels.shape[-2:])
        draws = sample_noise(
            self._recipe.trainer.seed,
            positions,
            (architecture.latent_channels, height, width),
            num_timesteps=1,
            caption_dropout=0.0,
            device=self.model.device,
        )

        def loss(network: nn.Module) -> Tensor:
            with autocast_of(self._recipe, self.model.device), attention_of(self._recipe):
                restored, mean, logvar = network(pixels, draws.posterior)
            # Validation computes the loss too, and its images must not count.
            if torch.is_grad_enabled():
                self._psnr.append(psnr(restored.detach(), pixels).mean())
            return self._loss(self._recipe.vae, restored, pixels, mean, logvar)

        return loss

    def metrics(self) -> dict[str, Tensor]:
        """The mean PSNR of the training images."""
        seen, self._psnr = self._psnr, []
        return {"psnr": torch.stack(seen).mean()} if seen else {}
