"""The text encoders and the UNet as one network, for training that backpropagates into the text encoders.

It also holds what such tasks share: the layers of an encoder that are read, and parameter names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calotype.models.architecture import nth
from calotype.models.model import Model
from calotype.train.data.types import Batch
from calotype.train.encode import encode_tokens, tokenize
from calotype.train.loss import LossInput
from calotype.train.rng import SampleNoise


class UNetWithText(nn.Module):
    """One module for the backward pass through the UNet and the text encoders.

    It is a single module because ranks synchronize the gradients of what runs inside a module.
    """

    def __init__(self, model: Model, trained: nn.ModuleList) -> None:
        """`trained` holds the trained modules; only their gradients are synchronized."""
        super().__init__()
        self.trained = trained
        # A tuple keeps torch from registering the model as a submodule.
        self._model = (model,)

    def forward(
        self, noisy: Tensor, timesteps: Tensor, tokens: Sequence[Tensor], time_ids: Tensor | None
    ) -> Tensor:
        (model,) = self._model
        context, pooled = encode_tokens(model, tokens)
        added: dict[str, Any] | None = None
        if time_ids is not None:
            added = {"text_embeds": pooled, "time_ids": time_ids}
        return model.unet(
            noisy.to(model.unet.dtype),
            timesteps,
            encoder_hidden_states=context.to(model.unet.dtype),
            added_cond_kwargs=added,
            return_dict=False,
        )[0]


def predict_from_captions(
    model: Model, loss_input: LossInput, batch: Batch, draws: SampleNoise, captions: Sequence[str]
) -> Callable[[nn.Module], Tensor]:
    """Run a `UNetWithText` on the captions of a batch, dropped ones replaced by the empty caption."""
    # Selecting among tokens instead of texts avoids waiting for the device to know which are dropped.
    drop = draws.drop_caption[:, None]
    caption_tokens, empty_tokens = tokenize(model, captions), tokenize(model, [""])
    tokens = [
        torch.where(drop, empty_ids, caption_ids)
        for empty_ids, caption_ids in zip(empty_tokens, caption_tokens, strict=True)
    ]
    sizes = batch.sizes if model.architecture.family == "sdxl" else None
    return lambda network: network(loss_input.noisy, loss_input.timesteps, tokens, sizes)


def encoders_by_part(model: Model) -> dict[str, Any]:
    """The text encoders by part name."""
    return {f"text_encoder{nth(i)}": encoder for i, encoder in enumerate(model.text_encoders)}


def moving_parameters(model: Model, encoders: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """The trained parameters: the UNet's under their own names, an encoder's prefixed with its part."""
    parts = {"": model.unet, **{f"{part}.": encoder for part, encoder in encoders.items()}}
    return {
        f"{prefix}{name}": parameter
        for prefix, module in parts.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def layers_read(encoder: Any, model: Model) -> range:
    """The layers of a text encoder that the UNet reads; a layer that is not read cannot be trained."""
    count = encoder.config.num_hidden_layers
    # SDXL reads the last layer but one; it reads the last only through the second encoder's projection.
    skips_last = model.architecture.family == "sdxl" and not hasattr(encoder, "text_projection")
    return range(count - 1 if skips_last else count)
