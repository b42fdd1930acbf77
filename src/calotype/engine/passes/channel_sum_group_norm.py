"""Group normalisation from sums over each channel, the form that compiles well for channels-last pictures.

A group is a few channels: read channels-last, its numbers lie in short runs far apart, and a compiler that
reduces group by group reads badly. Sums over whole channels read straight through memory; a group's are then
sums of a few numbers. The gradient that follows has the same form. Without a compiler this is slower than
torch's own, so it belongs to compiled networks only.

What follows a normalisation in these networks is mostly SiLU, whose gradient needs the normalised numbers.
Left to itself the compiler keeps them in single precision until then, twice the size of the picture they
follow from; with both in one function it makes them again from the picture, which is kept anyway.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, silu

if TYPE_CHECKING:
    from diffusers.models.resnet import ResnetBlock2D


class _Activated(torch.autograd.Function):
    """SiLU of `numbers * scale + shift`, with a factor and a summand for every channel of every picture."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(numbers, scale, shift)
        return silu(numbers * scale + shift)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        numbers, scale, shift = ctx.saved_tensors
        # The other sign: written as above, the compiler would see the same numbers and keep them.
        negative = numbers * -scale - shift
        share = torch.sigmoid(-negative)
        inner = gradient * share * (1 - negative * (1 - share))
        places = tuple(range(2, numbers.ndim))
        return (
            inner * scale,
            (inner * numbers).sum(places, keepdim=True),
            inner.sum(places, keepdim=True),
        )


class ChannelSumNorm(nn.GroupNorm):
    """`nn.GroupNorm` with its parameters, computed the other way round; with SiLU if `activates`."""

    activates = False

    @classmethod
    def of(cls, norm: nn.GroupNorm) -> Self:
        """In the place of `norm`, with the very same parameters."""
        made = cls(norm.num_groups, norm.num_channels, norm.eps, device="meta")
        made.weight, made.bias = norm.weight, norm.bias
        return made.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the parent's name for it
        n, c = input.shape[:2]
        places = tuple(range(2, input.ndim))
        with torch.autocast(input.device.type, enabled=False):
            numbers = input.float()
            per_group = input[0].numel() // self.num_groups
            mean, square = (
                each.sum(places).view(n, self.num_groups, -1).sum(-1) / per_group
                for each in (numbers, numbers.square())
            )
            # What rounding leaves below zero is a group of equal numbers.
            inverse = ((square - mean.square()).clamp_min(0) + self.eps).rsqrt()
            scale, shift = self._per_channel(inverse, mean).view(2, n, c, *(1 for _ in places))
            result = _Activated.apply(numbers, scale, shift) if self.activates else numbers * scale + shift
        # As torch's own: single precision under autocast on a GPU, the input's numbers otherwise.
        single = input.is_cuda and torch.is_autocast_enabled("cuda")
        return result if single else result.to(input.dtype)

    def _per_channel(self, inverse: Tensor, mean: Tensor) -> Tensor:
        """Factors and summands for every channel of every picture, one above the other.

        A matrix product, because a compiler puts anything else into the loop over all pixels and divides and
        takes roots there.
        """
        rows = torch.cat([pad(inverse, (0, 1)), pad(-mean * inverse, (0, 1), value=1.0)])
        groups = torch.arange(self.num_groups, device=mean.device)[:, None]
        channels = torch.arange(self.num_channels, device=mean.device)
        member = channels // (self.num_channels // self.num_groups) == groups
        return rows @ torch.cat([member * self.weight.float(), self.bias.float()[None]])


def use_channel_sum_group_norm(network: nn.Module) -> None:
    """Replace every group normalisation in the network; parameters and their names stay."""
    from diffusers.models.resnet import ResnetBlock2D  # noqa: PLC0415 - seconds to import

    for name, part in list(network.named_modules()):
        if isinstance(part, nn.GroupNorm) and part.affine:
            network.set_submodule(name, ChannelSumNorm.of(part))
    for part in network.modules():
        if isinstance(part, ResnetBlock2D) and _is_usual(part):
            part.norm1.activates = part.norm2.activates = True
            part.forward = partial(_residual, part)


def _is_usual(block: ResnetBlock2D) -> bool:
    keeps_size = block.upsample is None and block.downsample is None
    adds_time = block.time_embedding_norm == "default" and not block.skip_time_act
    scaled = block.output_scale_factor != 1
    return keeps_size and adds_time and not scaled and isinstance(block.nonlinearity, nn.SiLU)


def _residual(block: ResnetBlock2D, picture: Tensor, temb: Tensor | None) -> Tensor:
    """What such a block does, whose norms activate."""
    inner = block.conv1(block.norm1(picture))
    if block.time_emb_proj is not None and temb is not None:
        inner = inner + block.time_emb_proj(silu(temb))[:, :, None, None]
    inner = block.conv2(block.dropout(block.norm2(inner)))
    return inner + (picture if block.conv_shortcut is None else block.conv_shortcut(picture))
