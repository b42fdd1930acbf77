"""The residual blocks' 3×3 convolutions in e4m3 (FP8), from pictures that the norm before writes so.

A Hopper GPU multiplies e4m3 twice as fast as bf16 and reads half as much, and the norm writes half as much.
SDXL's at batch 8 take 14.7 ms on an H200, cuDNN's in bf16 28.2. The layers that begin and end a UNet or
change a picture's size stay as they are: few, and read by no norm. On GPUs before Hopper all do.

One factor for each layer is known from its norm's weight and bias, so nothing is measured as it comes. What
it is hardly matters as long as nothing is cut off: behind the norms of the embedded model the rounding is
31.4 dB below the numbers with any from 1 to 16; with 1/16 small numbers cost up to 4.6 dB, and what is cut
off with 256 costs 3 to 21. So there is room for 64 standard deviations, where 13 were the most seen. A factor
for each channel would gain nothing: unlike whole numbers, e4m3 is as exact for small ones as for large ones.

Lossy: the picture changes a little; `calotype compare` says by how much. On a CPU it shows the quality alone.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from calotype.engine.kernels.fp8_conv import WIDTHS, factor_for, runs_kernel_on
from calotype.engine.memory_planner import fp8_convolution_bytes
from calotype.engine.modules.fp8_conv import Fp8Conv, supports
from calotype.engine.modules.ops import DeferredSum
from calotype.engine.passes import NetworkBuilder, Pass, fused_norms
from calotype.engine.passes.channels_last import CHANNELS_LAST
from calotype.engine.passes.fused_norms import FUSED_NORMS
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.engine.passes.quantize_8bit import UNCOMPILED
from calotype.models.model import Model

DEVIATIONS = 64.0
"""Of a group's numbers from their mean that are not cut off."""


def _missing(model: Model) -> str | None:
    if model.device.type == "cuda" and model.dtype == torch.float32:
        return "fp8 is for models in half precision; load the model with --precision bf16 or fp16"
    width = next((w for w in model.architecture.unet["block_out_channels"] if w % WIDTHS), None)
    if width is not None:
        return f"its UNet has a width of {width}, which is no multiple of {WIDTHS}"
    return None


def scale_after(norm: nn.GroupNorm) -> float:
    """What this norm's numbers, with SiLU or without, are multiplied by."""
    largest = norm.weight.detach().float().abs() * DEVIATIONS + norm.bias.detach().float().abs()
    return factor_for(float(largest.max()))


def _pairs(unet: nn.Module) -> Iterator[tuple[nn.GroupNorm, nn.Conv2d]]:
    """Norms of residual blocks, each with the convolution that reads it and nothing else does."""
    for block in unet.modules():
        if type(block).__name__ == "ResnetBlock2D":
            for norm, layer in (("norm1", "conv1"), ("norm2", "conv2")):
                convolution = block.get_submodule(layer)
                assert isinstance(convolution, nn.Conv2d)
                if supports(convolution):
                    reading = block.get_submodule(norm)
                    assert isinstance(reading, nn.GroupNorm)
                    yield reading, convolution


def _apply(assembly: NetworkBuilder) -> None:
    device = assembly.model.device
    if device.type == "cuda" and not runs_kernel_on(device):
        return  # a GPU that is older: its own convolutions are faster than any in e4m3
    pairs = list(_pairs(assembly.model.unet))
    behind = {norm: scale_after(norm) for norm, _ in pairs}
    convolution = Fp8Conv(
        {layer: behind[norm] for norm, layer in pairs},
        assembly.model.dtype,
        assembly.operations.convolution,
    )

    def group_norm(
        x: DeferredSum, norm: nn.GroupNorm, *, silu: bool, shift: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return fused_norms.group_norm(x, norm, silu=silu, shift=shift, factor=behind.get(norm))

    def joined_group_norm(x: DeferredSum, skip: Tensor, norm: nn.GroupNorm) -> tuple[Tensor, Tensor]:
        return fused_norms.group_norm_concat(x, skip, norm, factor=behind.get(norm))

    assembly.on_change.append(convolution.refresh)
    assembly.resident_bytes += fp8_convolution_bytes(assembly.model.architecture)
    assembly.operations = replace(
        assembly.operations,
        convolution=convolution,
        group_norm=group_norm,
        joined_group_norm=joined_group_norm,
    )


FP8_CONV = Pass(
    "fp8_convolutions",
    "lossy",
    _missing,
    _apply,
    after=(NATIVE_UNET.name, CHANNELS_LAST.name, FUSED_NORMS.name),
    excludes=("winograd", *UNCOMPILED),
)
