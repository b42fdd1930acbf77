"""A residual block of convolutions. Knows nothing of its neighbours."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calotype.engine.modules.ops import DeferredSum, Operations, image_to_tokens, pointwise, tokens_to_image


class Resnet:
    """diffusers' ResnetBlock2D as Stable Diffusion uses it."""

    def __init__(self, block: Any, operations: Operations) -> None:
        self._block, self._do = block, operations

    def __call__(
        self, x: DeferredSum, skip: Tensor | None = None, shift: Tensor | None = None
    ) -> tuple[DeferredSum, Tensor]:
        """The answer, and what it is the answer to, put together.

        `skip` brings more channels; `shift` is a number for each channel that the first convolution makes.
        The first convolution's bias is part of the shift where there is one.
        """
        block, do = self._block, self._do
        if skip is None:
            inside, whole = do.group_norm(x, block.norm1, silu=True)
        else:
            inside, whole = do.joined_group_norm(x, skip, block.norm1)
        inside = do.convolution(inside, block.conv1, None)
        if shift is None:
            shift = block.conv1.bias.expand(len(inside), -1)
        inside, _ = do.group_norm(DeferredSum(inside), block.norm2, silu=True, shift=shift)
        inside = do.convolution(inside, block.conv2, None)
        shortcut = whole
        if block.conv_shortcut is not None:
            tokens = do.outer_linear(
                image_to_tokens(whole), pointwise(block.conv_shortcut), block.conv_shortcut.bias
            )
            shortcut = tokens_to_image(tokens, whole)
        return DeferredSum(shortcut, inside, block.conv2.bias), whole


class ResnetOfTensors:
    """The same with its sums taken apart: whoever compiles it knows tensors alone."""

    def __init__(self, block: Any, operations: Operations) -> None:
        self._whole = Resnet(block, operations)

    def __call__(
        self,
        x: Tensor,
        addend: Tensor | None,
        bias: Tensor | None,
        skip: Tensor | None,
        shift: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        answer, whole = self._whole(DeferredSum(x, addend, bias), skip, shift)
        return answer.x, answer.addend, answer.bias, whole


def reason_against(block: Any) -> str | None:
    """Why a block of this class cannot be run here."""
    # Without a time embedding it does not matter what would be done with it.
    told = block.time_emb_proj is not None and block.time_embedding_norm != "default"
    if told or block.output_scale_factor != 1:
        return "a residual block scales by the time embedding or by a factor"
    if block.upsample is not None or block.downsample is not None:
        return "a residual block changes the size"
    shortcut = block.conv_shortcut
    if shortcut is not None and tuple(shortcut.kernel_size) != (1, 1):
        return "a residual block's shortcut looks at more than one place"
    return None
