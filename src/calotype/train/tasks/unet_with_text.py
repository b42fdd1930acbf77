"""Text encoders and UNet as one network, for training that reaches back into the text. Knows no losses.

Also what such training has in common: which parts of an encoder are read at all, and names of parameters.
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
    """The way the gradient takes back through the UNet and the text encoders.

    One module, because gradients are exchanged between processes for what happens inside a module.
    """

    def __init__(self, model: Model, trained: nn.ModuleList) -> None:
        """`trained` holds what is trained; nothing else of the model is anybody's to exchange."""
        super().__init__()
        self.trained = trained
        # In a tuple, torch does not take it for a part.
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
    """Ask a `UNetWithText` about the captions of a batch, the dropped ones replaced by the empty one."""
    # Chosen among the tokens, not the texts: nobody waits for the device to say which are dropped.
    drop = draws.drop_caption[:, None]
    told, empty = tokenize(model, captions), tokenize(model, [""])
    tokens = [torch.where(drop, nothing, each) for nothing, each in zip(empty, told, strict=True)]
    sizes = batch.sizes if model.architecture.family == "sdxl" else None
    return lambda network: network(loss_input.noisy, loss_input.timesteps, tokens, sizes)


def encoders_by_part(model: Model) -> dict[str, Any]:
    """The text encoders under the names of their parts."""
    return {f"text_encoder{nth(i)}": encoder for i, encoder in enumerate(model.text_encoders)}


def moving_parameters(model: Model, encoders: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """What is trained: of the UNet under its own names, of an encoder after its part's."""
    parts = {"": model.unet, **{f"{part}.": encoder for part, encoder in encoders.items()}}
    return {
        f"{prefix}{name}": parameter
        for prefix, module in parts.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def layers_read(encoder: Any, model: Model) -> range:
    """The layers of a text encoder that the UNet gets to see: what nobody reads cannot be trained."""
    count = encoder.config.num_hidden_layers
    # SDXL reads the last layer but one, and the last only through the second encoder's projection.
    skips_last = model.architecture.family == "sdxl" and not hasattr(encoder, "text_projection")
    return range(count - 1 if skips_last else count)
