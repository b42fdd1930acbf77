"""A UNet that listens to ControlNets, by diffusers' own forward passes. Knows nothing of samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from calotype.engine.unet_runner import Row, added_conditions, stack_contexts, timesteps
from calotype.models.model import Model
from calotype.workflow.nodes.impl.conditioning_masks import Control
from calotype.workflow.nodes.impl.resize import CENTER, resized

HINT_PIXELS = 8
"""Pixels of a hint per latent pixel: what ControlNets were made for."""


@dataclass(frozen=True)
class ControlNetHooks:
    """A ControlNet ready to be asked."""

    net: nn.Module
    hint: Tensor
    strength: float
    timesteps: tuple[float, float]
    """Those it has something to say at."""


def with_controlnets(
    control: Control, net: nn.Module, model: Model, size: tuple[int, int], last: int
) -> ControlNetHooks:
    """`size` is that of the latents; `last` is the last training timestep."""
    height, width = (length * HINT_PIXELS for length in size)
    hint = resized(control.image, width, height, "nearest-exact", CENTER)
    # Shares of the sampling count from its noisy end.
    first = last if control.start_percent <= 0 else (1 - control.start_percent) * last
    until = 0.0 if control.end_percent >= 1 else (1 - control.end_percent) * last
    return ControlNetHooks(net, hint.to(model.device, model.dtype), control.strength, (until, first))


class ControlledNetwork:
    """`UNetRunner` of a model's UNet and ControlNets whose words are added up."""

    def __init__(self, model: Model, controls: Sequence[ControlNetHooks]) -> None:
        self._model, self._controls = model, controls

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        context, mask = stack_contexts(rows)
        told = {
            "encoder_hidden_states": context.to(sample.dtype),
            "added_cond_kwargs": added_conditions(rows, sample.dtype),
            "return_dict": False,
        }
        times = timesteps(rows, sample.device)
        words: list[Tensor] | None = None
        for control in self._controls:
            # All rows are of one sampling, and at one timestep.
            if control.timesteps[0] <= rows[0].timestep <= control.timesteps[1]:
                said = self._said(control, sample, times, told)
                words = said if words is None else [a + b for a, b in zip(words, said, strict=True)]
        return self._model.unet(
            sample,
            times,
            encoder_attention_mask=mask,
            down_block_additional_residuals=None if words is None else tuple(words[:-1]),
            mid_block_additional_residual=None if words is None else words[-1],
            **told,
        )[0]

    def _said(
        self, control: ControlNetHooks, sample: Tensor, times: Tensor, told: Mapping[str, object]
    ) -> list[Tensor]:
        rows = torch.arange(len(sample)) % len(control.hint)
        latents = sample[:, : self._model.architecture.latent_channels]
        down, middle = control.net(
            latents, times, controlnet_cond=control.hint[rows], conditioning_scale=control.strength, **told
        )
        return [*down, middle]

    def invalidate(self) -> None:
        """It remembers nothing."""
