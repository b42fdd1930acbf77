"""The layers that UNets and VAEs share, named as in diffusers, because passes find blocks by those names."""

from __future__ import annotations

from torch import nn

from calotype.models.skeleton.init_free_layers import Conv2d, Linear


class ResnetBlock2D(nn.Module):
    """Two norms and convolutions with the time embedding added between them, and a residual connection."""

    def __init__(self, width: int, out: int, *, groups: int, eps: float, time_width: int | None) -> None:
        """`time_width` is the width of the time embedding, or None without one."""
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, width, eps)
        self.conv1 = Conv2d(width, out, 3, padding=1)
        self.time_emb_proj = None if time_width is None else Linear(time_width, out)
        self.norm2 = nn.GroupNorm(groups, out, eps)
        self.conv2 = Conv2d(out, out, 3, padding=1)
        self.conv_shortcut = None if width == out else Conv2d(width, out, 1)


class Downsample2D(nn.Module):
    """Halves the size with a strided convolution."""

    def __init__(self, width: int, padding: int) -> None:
        super().__init__()
        self.conv = Conv2d(width, width, 3, stride=2, padding=padding)


class Upsample2D(nn.Module):
    """Doubles the size, then applies a convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = Conv2d(width, width, 3, padding=1)


class Attention(nn.Module):
    """Attention with queries from one input, keys and values from another or the same."""

    def __init__(
        self, width: int, context_width: int, heads: int, *, biases: bool, groups: int | None = None
    ) -> None:
        """With `groups`, a group norm precedes it. `context_width` is the key and value input width."""
        super().__init__()
        self.heads = heads
        self.group_norm = None if groups is None else nn.GroupNorm(groups, width, eps=1e-6)
        self.to_q = Linear(width, width, bias=biases)
        self.to_k = Linear(context_width, width, bias=biases)
        self.to_v = Linear(context_width, width, bias=biases)
        self.to_out = nn.ModuleList([Linear(width, width)])
