"""A typical training loop with diffusers and torch.compile, on the recipe's weights and shapes.

The UNet's weights in fp32 under autocast, frozen encoders in the recipe's precision, fused AdamW, clipping,
diffusers' own EMA; synthetic data made on the device. Knows nothing of clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.tasks.base import DTYPES

NUM_SIZES = 6
"""Number of size and crop conditioning values of SDXL."""


@dataclass(frozen=True)
class _Conditions:
    """The inputs of a step."""

    latents: Tensor
    context: Tensor
    added: dict[str, Tensor] | None


class DiffusersLoop:
    """Trains one update at a time."""

    def __init__(self, model: Model, recipe: Recipe, *, compiled: bool) -> None:
        import diffusers  # noqa: PLC0415 - takes seconds, and only peers need it
        from diffusers.training_utils import EMAModel  # noqa: PLC0415 - the same

        torch.manual_seed(recipe.trainer.seed)
        self._model, self._recipe = model, recipe
        self._dtype = DTYPES[recipe.model.precision]
        self._unet = model.unet.train().requires_grad_(True)
        if recipe.model.gradient_checkpointing:
            self._unet.enable_gradient_checkpointing()
        self._noises = diffusers.DDPMScheduler.from_config(model.architecture.scheduler)
        parameters = list(self._unet.parameters())
        part = recipe.optimizer
        self._optimizer = torch.optim.AdamW(
            parameters, part.learning_rate, betas=part.betas, weight_decay=part.weight_decay, fused=True
        )
        self._ema = (
            EMAModel(parameters, decay=recipe.ema.decay, foreach=True) if recipe.model.use_ema else None
        )
        self._network: Callable[..., Any] = torch.compile(self._unet) if compiled else self._unet
        self._encode: Callable[..., Any] = torch.compile(model.vae.encode) if compiled else model.vae.encode

    def step(self) -> Tensor:
        """Run one update with the recipe's gradient accumulation; return the loss."""
        total = torch.zeros((), device=self._model.device)
        for _ in range(self._recipe.accumulation):
            loss = self._loss() / self._recipe.accumulation
            loss.backward()
            total += loss.detach()
        if self._recipe.optimizer.gradient_clip:
            torch.nn.utils.clip_grad_norm_(self._unet.parameters(), self._recipe.optimizer.gradient_clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._ema:
            self._ema.step(self._unet.parameters())
        return total

    def _loss(self) -> Tensor:
        given = self._conditions()
        device, noise = given.latents.device, torch.randn_like(given.latents)
        most = self._noises.config.num_train_timesteps
        timesteps = torch.randint(0, most, (len(noise),), device=device)
        noisy = self._noises.add_noise(given.latents, noise, timesteps)
        half = self._dtype != torch.float32
        with torch.autocast(device.type, self._dtype if half else torch.bfloat16, enabled=half):
            answer = self._network(
                noisy, timesteps, given.context, added_cond_kwargs=given.added, return_dict=False
            )[0]
        wanted = noise
        if self._noises.config.prediction_type == "v_prediction":
            wanted = self._noises.get_velocity(given.latents, noise, timesteps)
        return mse_loss(answer.float(), wanted)

    def _conditions(self) -> _Conditions:
        architecture, device = self._model.architecture, self._model.device
        count = self._recipe.model.micro_batch_size
        side = self._recipe.model.resolution or architecture.native_size
        latent = side // architecture.vae_factor
        if self._recipe.data.kind == "synthetic_latents":
            latents = torch.randn(count, architecture.latent_channels, latent, latent, device=device)
            tokens = architecture.text_encoders[0].get("max_position_embeddings", 77)
            width = architecture.unet["cross_attention_dim"]
            context = torch.randn(count, tokens, width, device=device, dtype=self._dtype)
            summary = architecture.text_encoders[-1].get("projection_dim", 1)
            pooled = torch.randn(count, summary, device=device, dtype=self._dtype)
            return _Conditions(latents, context, self._added(pooled, side))
        vae = self._model.vae
        pixels = torch.rand(count, 3, side, side, device=device, dtype=vae.dtype) * 2 - 1
        with torch.no_grad():
            latents = self._encode(pixels).latent_dist.sample() * vae.config.scaling_factor
            context, pooled = self._texts(count)
        return _Conditions(latents.float(), context, self._added(pooled, side))

    def _texts(self, count: int) -> tuple[Tensor, Tensor]:
        """Encode random tokens with the text encoders."""
        large = self._model.architecture.family == "sdxl"
        contexts, pooled = [], torch.empty(0)
        for encoder in self._model.text_encoders:
            shape = (count, encoder.config.max_position_embeddings)
            words = torch.randint(0, encoder.config.vocab_size, shape, device=self._model.device)
            said = encoder(words, output_hidden_states=large)
            pooled = said[0]
            contexts.append(said.hidden_states[-2] if large else said[0])
        return torch.cat(contexts, dim=-1), pooled

    def _added(self, pooled: Tensor, side: int) -> dict[str, Tensor] | None:
        if self._model.architecture.family != "sdxl":
            return None
        sizes = torch.tensor([side, side, 0, 0, side, side], device=pooled.device, dtype=torch.float32)
        return {"text_embeds": pooled, "time_ids": sizes.expand(len(pooled), NUM_SIZES)}
