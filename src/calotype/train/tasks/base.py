"""The training task interface and the UNet task: which parameters are trained, and a micro-batch's loss.

The autoencoder and the text encoders are frozen and run in the loop, unless the batch holds their outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from calotype.engine.capabilities import schedule_of
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.compile import apply_passes, compiled_function
from calotype.train.data.types import Batch, Text
from calotype.train.encode import encode_captions, encode_images, encode_tokens, sample_latents, tokenize
from calotype.train.loss import LossInput, Objective
from calotype.train.rng import SampleNoise, sample_noise

ATTENTION = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


LossFn = Callable[[nn.Module], Tensor]
"""The loss of a network on a micro-batch that is already prepared."""


class TrainTask(Protocol):
    """What is trained, and the loss of a micro-batch."""

    model: Model

    @property
    def network(self) -> nn.Module:
        """The module whose gradients are synchronized between ranks."""
        ...

    def parameters(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name."""
        ...

    def use_empty_text(self, text: Text | None) -> None:
        """Set the embedding for dropped captions, if the dataset provides one."""
        ...

    def prepare(self, batch: Batch, positions: Sequence[int]) -> LossFn:
        """Compute everything that does not depend on the trained weights; the result computes the loss."""
        ...

    def metrics(self) -> dict[str, Tensor]:
        """The task's own metrics of the micro-batches since the last call, by name."""
        ...


class UNetTask:
    """The whole UNet."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        self.model = model
        self._recipe = recipe
        self._objective = Objective(
            recipe.objective, model.architecture.prediction_type, schedule_of(model), model.device
        )
        self._empty: tuple[Tensor, Tensor | None] | None = None
        unet = model.unet.requires_grad_(True).train()
        if recipe.model.gradient_checkpointing:
            unet.enable_gradient_checkpointing()
        apply_passes(model, recipe)
        self._layout = torch.channels_last if recipe.model.channels_last else torch.contiguous_format
        self._encode_tokens = compiled_function(encode_tokens, recipe)

    @property
    def network(self) -> nn.Module:
        unet: nn.Module = self.model.unet
        return unet

    def parameters(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.network.named_parameters() if p.requires_grad}

    def use_empty_text(self, text: Text | None) -> None:
        """Set the embedding for dropped captions, if the dataset provides one; else "" is encoded."""
        if text is not None:
            pooled = None if text.pooled is None else text.pooled[None].to(self.model.device)
            self._empty = text.context[None].to(self.model.device), pooled

    def prepare(self, batch: Batch, positions: Sequence[int]) -> LossFn:
        draws = self._draws(batch, positions)
        latents = self._latents(batch, draws)
        offset = draws.offset if self._objective.wants_offset else None
        loss_input = self._objective.ask(latents, draws.noise, draws.timesteps, offset)
        predict = self._predict(loss_input, batch, draws)

        def loss(network: nn.Module) -> Tensor:
            with self._autocast(), self._attention():
                prediction = predict(network)
            return self._objective.loss(prediction, loss_input)

        return loss

    def metrics(self) -> dict[str, Tensor]:
        return {}

    def _predict(
        self, loss_input: LossInput, batch: Batch, draws: SampleNoise
    ) -> Callable[[nn.Module], Tensor]:
        """Prepare the other inputs of the network; the result runs a network on them."""
        context, pooled = self._text(batch, draws)
        # One memory format whatever the latents' source, so that the network is compiled only once.
        noisy = loss_input.noisy.to(self.model.unet.dtype, memory_format=self._layout)
        context, added = context.to(self.model.unet.dtype), self._added(batch, pooled)
        return lambda network: network(
            noisy,
            loss_input.timesteps,
            encoder_hidden_states=context,
            added_cond_kwargs=added,
            return_dict=False,
        )[0]

    def _draws(self, batch: Batch, positions: Sequence[int]) -> SampleNoise:
        architecture = self.model.architecture
        encoded = batch.moments if batch.latents is None else batch.latents
        if encoded is not None:
            height, width = encoded.shape[-2:]
        else:
            assert batch.pixels is not None
            height, width = (side // architecture.vae_factor for side in batch.pixels.shape[-2:])
        return sample_noise(
            self._recipe.trainer.seed,
            positions,
            (architecture.latent_channels, height, width),
            num_timesteps=self._objective.num_timesteps,
            caption_dropout=self._recipe.objective.caption_dropout,
            device=self.model.device,
        )

    def _latents(self, batch: Batch, draws: SampleNoise) -> Tensor:
        if batch.latents is not None:
            return batch.latents.float()
        if batch.moments is not None:
            return sample_latents(self.model, batch.moments, draws.posterior)
        assert batch.pixels is not None
        return encode_images(self.model, batch.pixels, draws.posterior)

    # The frozen parts have the training dtype already, so they run outside of autocast.
    def _text(self, batch: Batch, draws: SampleNoise) -> tuple[Tensor, Tensor | None]:
        """Context and pooled embeddings, with dropped captions replaced by the empty one."""
        if batch.context is not None:
            context, pooled = batch.context, batch.pooled
        else:
            with torch.no_grad():
                context, pooled = self._encode_tokens(self.model, tokenize(self.model, batch.captions))
        if self._recipe.objective.caption_dropout == 0:
            return context, pooled
        if self._empty is None:
            self._empty = encode_captions(self.model, [""])
        empty, empty_pooled = self._empty
        drop = draws.drop_caption
        context = torch.where(drop[:, None, None], empty.to(context.dtype), context)
        if pooled is not None and empty_pooled is not None:
            pooled = torch.where(drop[:, None], empty_pooled.to(pooled.dtype), pooled)
        return context, pooled

    def _added(self, batch: Batch, pooled: Tensor | None) -> dict[str, Any] | None:
        if self.model.architecture.family != "sdxl":
            return None
        assert batch.sizes is not None
        return {"text_embeds": pooled, "time_ids": batch.sizes.to(self.model.device)}

    def _autocast(self) -> AbstractContextManager[Any]:
        return autocast_of(self._recipe, self.model.device)

    def _attention(self) -> AbstractContextManager[Any]:
        return attention_of(self._recipe)


def autocast_of(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast to the recipe's precision, if the weights are in fp32."""
    if recipe.model.precision == "fp32" or recipe.model.low_precision_weights:
        return nullcontext()
    return torch.autocast(device.type, DTYPES[recipe.model.precision])


def attention_of(recipe: Recipe) -> AbstractContextManager[Any]:
    """Select the recipe's attention kernel."""
    name = recipe.model.attention
    return nullcontext() if name == "auto" else sdpa_kernel(ATTENTION[name])
