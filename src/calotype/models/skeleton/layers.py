"""What UNets and autoencoders are both made of, named as in diffusers: passes know blocks by those names.

Knows no configuration.
"""

from __future__ import annotations

from torch import nn

from calotype.models.skeleton.init_free_layers import Conv2d, Linear


class ResnetBlock2D(nn.Module):
    """Norm and convolution twice, and what a timestep adds between; the input is added in the end."""

    def __init__(self, width: int, out: int, *, groups: int, eps: float, told: int | None) -> None:
        """`told` is the width of the time embedding, if it is told one."""
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, width, eps)
        self.conv1 = Conv2d(width, out, 3, padding=1)
        self.time_emb_proj = None if told is None else Linear(told, out)
        self.norm2 = nn.GroupNorm(groups, out, eps)
        self.conv2 = Conv2d(out, out, 3, padding=1)
        self.conv_shortcut = None if width == out else Conv2d(width, out, 1)


class Downsample2D(nn.Module):
    """Half the size, by a convolution."""

    def __init__(self, width: int, padding: int) -> None:
        super().__init__()
        self.conv = Conv2d(width, width, 3, stride=2, padding=padding)


class Upsample2D(nn.Module):
    """Twice the size, and a convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = Conv2d(width, width, 3, padding=1)


class Attention(nn.Module):
    """Queries of one input, keys and values of another or the same."""

    def __init__(self, width: int, seen: int, heads: int, *, biases: bool, groups: int | None = None) -> None:
        """With `groups` what comes in is normalised first."""
        super().__init__()
        self.heads = heads
        self.group_norm = None if groups is None else nn.GroupNorm(groups, width, eps=1e-6)
        self.to_q = Linear(width, width, bias=biases)
        self.to_k = Linear(seen, width, bias=biases)
        self.to_v = Linear(seen, width, bias=biases)
        self.to_out = nn.ModuleList([Linear(width, width)])
