"""Runs a UNet with ControlNets, with diffusers' forward passes."""

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
"""Pixels of a hint per latent pixel, as ControlNets are trained."""


@dataclass(frozen=True)
class ControlNetHooks:
    """A loaded ControlNet with its hint and strength."""

    net: nn.Module
    hint: Tensor
    strength: float
    timesteps: tuple[float, float]
    """The range of timesteps at which it applies."""


def with_controlnets(
    control: Control, net: nn.Module, model: Model, size: tuple[int, int], last: int
) -> ControlNetHooks:
    """Prepare a ControlNet for latents of `size`; `last` is the last training timestep."""
    height, width = (length * HINT_PIXELS for length in size)
    hint = resized(control.image, width, height, "nearest-exact", CENTER)
    # Fractions of the sampling count from its noisy end.
    first = last if control.start_percent <= 0 else (1 - control.start_percent) * last
    until = 0.0 if control.end_percent >= 1 else (1 - control.end_percent) * last
    return ControlNetHooks(net, hint.to(model.device, model.dtype), control.strength, (until, first))


class ControlledNetwork:
    """A `UNetRunner` of a model's UNet with the summed residuals of its ControlNets."""

    def __init__(self, model: Model, controls: Sequence[ControlNetHooks]) -> None:
        self._model, self._controls = model, controls

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        context, mask = stack_contexts(rows)
        conditions = {
            "encoder_hidden_states": context.to(sample.dtype),
            "added_cond_kwargs": added_conditions(rows, sample.dtype),
            "return_dict": False,
        }
        times = timesteps(rows, sample.device)
        residuals: list[Tensor] | None = None
        for control in self._controls:
            # All rows belong to one sampling and share one timestep.
            if control.timesteps[0] <= rows[0].timestep <= control.timesteps[1]:
                added = self._control_residuals(control, sample, times, conditions)
                residuals = (
                    added if residuals is None else [a + b for a, b in zip(residuals, added, strict=True)]
                )
        return self._model.unet(
            sample,
            times,
            encoder_attention_mask=mask,
            down_block_additional_residuals=None if residuals is None else tuple(residuals[:-1]),
            mid_block_additional_residual=None if residuals is None else residuals[-1],
            **conditions,
        )[0]

    def _control_residuals(
        self, control: ControlNetHooks, sample: Tensor, times: Tensor, conditions: Mapping[str, object]
    ) -> list[Tensor]:
        rows = torch.arange(len(sample)) % len(control.hint)
        latents = sample[:, : self._model.architecture.latent_channels]
        down, middle = control.net(
            latents,
            times,
            controlnet_cond=control.hint[rows],
            conditioning_scale=control.strength,
            **conditions,
        )
        return [*down, middle]

    def invalidate(self) -> None:
        """Nothing to do: it caches nothing."""
