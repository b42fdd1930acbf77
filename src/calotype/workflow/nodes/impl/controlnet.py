"""Implements the ControlNet nodes: they record ControlNets in CONDITIONING, which the samplers evaluate."""

from __future__ import annotations

from torch import Tensor

from calotype.workflow.node_api import Context
from calotype.workflow.nodes.impl.conditioning_masks import Control, Pairs
from calotype.workflow.nodes.value_types import ControlNetValue


def apply(
    _context: Context, conditioning: Pairs, control_net: ControlNetValue, image: Tensor, strength: float
) -> tuple[Pairs]:
    """Apply a ControlNet to this side, and to the other side when both meet in a sampler."""
    if strength == 0:
        return (conditioning,)
    control = Control(control_net, image.movedim(-1, 1)[:, :3], strength)
    return (_with_control(conditioning, control, both=True),)


def apply_advanced(
    _context: Context,
    positive: Pairs,
    negative: Pairs,
    control_net: ControlNetValue,
    image: Tensor,
    strength: float,
    start_percent: float,
    end_percent: float,
    vae: object = None,
) -> tuple[Pairs, Pairs]:
    """Apply a ControlNet to both sides. `vae` is unused: other families need it, and workflows link it."""
    del vae
    if strength == 0:
        return positive, negative
    control = Control(control_net, image.movedim(-1, 1)[:, :3], strength, start_percent, end_percent)
    return _with_control(positive, control, both=False), _with_control(negative, control, both=False)


def _with_control(conditioning: Pairs, control: Control, *, both: bool) -> Pairs:
    return [
        (
            text,
            {
                **options,
                "control": (*options.get("control", ()), control),
                "control_apply_to_uncond": both,
            },
        )
        for text, options in conditioning
    ]
