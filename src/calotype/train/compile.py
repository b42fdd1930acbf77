"""Apply the switches `compile`, `cuda_graphs` and `channels_last` to the networks of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from calotype.engine.passes.channel_sum_group_norm import use_channel_sum_group_norm
from calotype.engine.passes.channels_last import use_channels_last
from calotype.engine.passes.fused_geglu_backward import use_fused_geglu_backward
from calotype.engine.passes.unscaled_attention_processor import use_unscaled_attention
from calotype.engine.passes.vae_attention import use_vae_attention
from calotype.models.model import Model
from calotype.spec.recipe import Recipe

Function = TypeVar("Function", bound=Callable[..., Any])

# Unrolled into the loop over pixels, a sum over the few channels of a group would be recomputed for every
# pixel; as a reduction it is computed once.
_OPTIONS = {"unroll_reductions_threshold": 1}
# The number of buffers an expression may read before inductor materializes its value; the default is 4. The
# gradient of a norm with SiLU reads five and, materialized, would be twice the size of the image; the sum of
# two convolutions and their biases reads four, and three kernels use it.
_TRAINED_OPTIONS = {**_OPTIONS, "realize_reads_threshold": 6}
_ENCODER_OPTIONS = {**_OPTIONS, "realize_reads_threshold": 3}


def apply_passes(model: Model, recipe: Recipe) -> None:
    """Arrange the networks as the recipe's switches say; the computed numbers stay the same."""
    if recipe.model.channels_last:
        use_channels_last(model.unet)
    if recipe.model.compile:
        # On one H200 a compiled channels-last encoder takes 3/5 of the eager one's time, while channels last
        # makes the eager one slower, so the two go together. The same holds for sums over channels.
        use_channels_last(model.vae.encoder)
        use_channel_sum_group_norm(model.vae.encoder)
        use_vae_attention(model.vae.encoder)
        model.vae.encoder.compile(options=dict(_ENCODER_OPTIONS))
        use_unscaled_attention(model.unet)
        if recipe.model.train in ("unet", "unet_and_text"):
            # A LoRA wraps the projections or hooks into them; reading the weights directly would bypass it.
            use_fused_geglu_backward(model.unet)
        if recipe.model.channels_last:
            use_channel_sum_group_norm(model.unet)


def apply_vae_passes(vae: nn.Module, recipe: Recipe) -> None:
    """The same for an autoencoder that is trained."""
    if recipe.model.channels_last:
        use_channels_last(vae)
        if recipe.model.compile:
            use_channel_sum_group_norm(vae)


def compiled(network: nn.Module, recipe: Recipe) -> nn.Module:
    """The trained network compiled with inductor or CUDA graphs or both, as the recipe says."""
    part = recipe.model
    if not (part.compile or part.cuda_graphs):
        return network
    if not part.compile:
        compiled_network = torch.compile(network, backend="cudagraphs")
    else:
        compiled_network = torch.compile(
            network, options={**_TRAINED_OPTIONS, "triton.cudagraphs": part.cuda_graphs}
        )
    return compiled_network  # type: ignore[return-value]  # a module in, a module out


def compiled_function(function: Function, recipe: Recipe) -> Function:
    """A function over frozen networks, compiled with inductor if the recipe compiles."""
    if not recipe.model.compile:
        return function
    return torch.compile(function, options=dict(_OPTIONS))  # type: ignore[return-value]  # the same function, faster
