"""Text encoders and UNet as one network, for training that reaches back into the text. Knows no losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calotype.models.model import Model
from calotype.train.conditions import encode_tokens, tokenise
from calotype.train.data.batch import Batch
from calotype.train.draws import Draws
from calotype.train.objective import Question


class PromptedUnet(nn.Module):
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


def answer_to_captions(
    model: Model, question: Question, batch: Batch, draws: Draws, captions: Sequence[str]
) -> Callable[[nn.Module], Tensor]:
    """Ask a `PromptedUnet` about the captions of a batch, the dropped ones replaced by the empty one."""
    drop = draws.drop_caption[:, None]
    told, empty = tokenise(model, captions), tokenise(model, [""])
    tokens = [torch.where(drop, nothing, each) for nothing, each in zip(empty, told, strict=True)]
    sizes = batch.sizes if model.architecture.family == "sdxl" else None
    return lambda network: network(question.noisy, question.timesteps, tokens, sizes)
