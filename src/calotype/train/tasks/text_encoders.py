"""Train the whole text encoders together with the UNet, as a model trained from scratch requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.data.types import Batch
from calotype.train.loss import LossInput
from calotype.train.rng import SampleNoise
from calotype.train.tasks.base import UNetTask
from calotype.train.tasks.unet_with_text import (
    UNetWithText,
    encoders_by_part,
    layers_read,
    moving_parameters,
    predict_from_captions,
)


class TextAndUNetTask(UNetTask):
    """The whole UNet and the layers of the text encoders that it reads."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        super().__init__(model, recipe)
        self._encoders = encoders_by_part(model)
        for encoder in self._encoders.values():
            encoder.requires_grad_(True)
            _freeze_unread(encoder, model)
        self._prompted = UNetWithText(model, nn.ModuleList([model.unet, *self._encoders.values()]))

    @property
    def network(self) -> nn.Module:
        return self._prompted

    def parameters(self) -> dict[str, nn.Parameter]:
        return moving_parameters(self.model, self._encoders)

    def _predict(
        self, loss_input: LossInput, batch: Batch, draws: SampleNoise
    ) -> Callable[[nn.Module], Tensor]:
        return predict_from_captions(self.model, loss_input, batch, draws, batch.captions)


def _freeze_unread(encoder: Any, model: Model) -> None:
    """Freeze layers that are not read: ranks wait for the gradient of every trained parameter."""
    body = getattr(encoder, "text_model", encoder)
    unread = body.encoder.layers[len(layers_read(encoder, model)) :]
    if len(unread):
        unread.requires_grad_(False)
        # It comes after the last layer.
        body.final_layer_norm.requires_grad_(False)


def by_part(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group the trained parameters of UNet and encoders by the part they belong to."""
    grouped: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        first, _, rest = name.partition(".")
        part, inside = (first, rest) if first.startswith("text_encoder") else ("unet", name)
        grouped.setdefault(part, {})[inside] = tensor
    return grouped
