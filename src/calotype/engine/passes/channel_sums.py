"""Group normalisation from sums over each channel, the form that compiles well for channels-last pictures.

A group is a few channels: read channels-last, its numbers lie in short runs far apart, and a compiler that
reduces group by group reads badly. Sums over whole channels read straight through memory; a group's are then
sums of a few numbers. The gradient that follows has the same form. Without a compiler this is slower than
torch's own, so it belongs to compiled networks only.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


class ChannelSumNorm(nn.GroupNorm):
    """`nn.GroupNorm` with its parameters, computed the other way round."""

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
            result = numbers * scale + shift
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


def use_channel_sums(network: nn.Module) -> None:
    """Replace every group normalisation in the network; parameters and their names stay."""
    for name, part in list(network.named_modules()):
        if isinstance(part, nn.GroupNorm) and part.affine:
            network.set_submodule(name, ChannelSumNorm.of(part))
