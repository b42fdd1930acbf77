"""Pictures with their channels innermost (NHWC) from end to end, which is how tensor cores read convolutions.

Setting the weights' memory format is not enough: diffusers copies back to channels-first after every
transformer, before every shortcut while training and before upsampling large batches, which makes copies and
kernels between two layouts. `use_channels_last` makes those three leave the picture as it lies, for training;
our own forward pass does not copy to begin with. The numbers that come out are the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements

if TYPE_CHECKING:
    from diffusers.models.transformers.transformer_2d import Transformer2DModel
    from diffusers.models.upsampling import Upsample2D


def _apply(assembly: NetworkBuilder) -> None:
    assembly.channels_last = True


CHANNELS_LAST = Pass("channels_last", "rounding", no_requirements, _apply, after=(NATIVE_UNET.name,))


def use_channels_last(network: nn.Module) -> None:
    """Keep the network's pictures channels-last. Call it after `train()`, which undoes a part of it."""
    # Seconds to import, and who has a network has them already.
    from diffusers.models.resnet import ResnetBlock2D  # noqa: PLC0415
    from diffusers.models.transformers.transformer_2d import Transformer2DModel  # noqa: PLC0415
    from diffusers.models.upsampling import Upsample2D  # noqa: PLC0415

    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's stubs
    for part in network.modules():
        if isinstance(part, ResnetBlock2D):
            # All it does with the flag is to copy before the shortcut; the dropout inside has its own.
            part.training = False
        elif isinstance(part, Transformer2DModel):
            part._get_output_for_continuous_inputs = partial(_back_to_picture, part)
        elif isinstance(part, Upsample2D) and part.norm is None and part.interpolate and part.use_conv:
            part.forward = partial(_enlarged, part)


def _back_to_picture(
    transformer: Transformer2DModel,
    hidden_states: Tensor,
    residual: Tensor,
    batch_size: int,
    height: int,
    width: int,
    inner_dim: int,
) -> Tensor:
    """A row of tokens is a channels-last picture already: only its name changes."""
    linear = transformer.use_linear_projection
    tokens = transformer.proj_out(hidden_states) if linear else hidden_states
    picture = tokens.reshape(batch_size, height, width, inner_dim).permute(0, 3, 1, 2)
    return (picture if linear else transformer.proj_out(picture)) + residual


def _enlarged(
    upsampler: Upsample2D, hidden_states: Tensor, output_size: tuple[int, int] | None = None
) -> Tensor:
    large = doubled(hidden_states) if output_size is None else interpolate(hidden_states, size=output_size)
    convolution = upsampler.conv if upsampler.name == "conv" else upsampler.Conv2d_0
    return convolution(large)


def doubled(picture: Tensor) -> Tensor:
    """Every pixel four times. Written as a repetition, so that its gradient is a sum and not a scatter."""
    n, c, h, w = picture.shape
    rows = picture.permute(0, 2, 3, 1)[:, :, None, :, None, :]
    return rows.expand(n, h, 2, w, 2, c).reshape(n, 2 * h, 2 * w, c).permute(0, 3, 1, 2)
