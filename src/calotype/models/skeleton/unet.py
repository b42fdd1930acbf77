"""The skeleton of Stable Diffusion's UNets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from calotype.models.skeleton.config import Settings, for_each, with_defaults
from calotype.models.skeleton.fallback import Skeleton
from calotype.models.skeleton.init_free_layers import Conv2d, Linear
from calotype.models.skeleton.layers import Attention, Downsample2D, ResnetBlock2D, Upsample2D

_FREE: dict[str, Any] = {
    "in_channels": 4,
    "out_channels": 4,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "down_block_types": ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
    "up_block_types": ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
    "block_out_channels": (320, 640, 1280, 1280),
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "norm_eps": 1e-5,
    "cross_attention_dim": 1280,
    "transformer_layers_per_block": 1,
    "attention_head_dim": 8,
    "use_linear_projection": False,
    "addition_embed_type": None,
    "addition_time_embed_dim": None,
    "projection_class_embeddings_input_dim": None,
}
_FIXED: dict[str, Any] = {
    "center_input_sample": False,
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "only_cross_attention": False,
    "downsample_padding": 1,
    "mid_block_scale_factor": 1,
    "dropout": 0.0,
    "act_fn": "silu",
    "reverse_transformer_layers_per_block": None,
    "encoder_hid_dim": None,
    "encoder_hid_dim_type": None,
    "num_attention_heads": None,
    "dual_cross_attention": False,
    "class_embed_type": None,
    "num_class_embeds": None,
    "resnet_time_scale_shift": "default",
    "resnet_skip_time_act": False,
    "resnet_out_scale_factor": 1.0,
    "time_embedding_type": "positional",
    "time_embedding_dim": None,
    "time_embedding_act_fn": None,
    "timestep_post_act": None,
    "time_cond_proj_dim": None,
    "conv_in_kernel": 3,
    "conv_out_kernel": 3,
    "attention_type": "default",
    "class_embeddings_concat": False,
    "mid_block_only_cross_attention": None,
    "cross_attention_norm": None,
    "addition_embed_type_num_heads": 64,
}
# A default size and how diffusers rounds attention: neither affects the weights.
_IGNORED = ("sample_size", "upcast_attention")
_DOWN, _UP = {"DownBlock2D", "CrossAttnDownBlock2D"}, {"UpBlock2D", "CrossAttnUpBlock2D"}


def settings_of(config: Mapping[str, Any]) -> Settings | None:
    """Parse the configuration; None if it has unsupported settings."""
    settings = with_defaults(config, _FREE, _FIXED, _IGNORED)
    if settings is None or not (_DOWN.issuperset(settings.down_block_types)):
        return None
    if not _UP.issuperset(settings.up_block_types) or not isinstance(settings.cross_attention_dim, int):
        return None
    depths = settings.transformer_layers_per_block
    if not isinstance(depths, int) and any(not isinstance(layers, int) for layers in depths):
        return None
    return settings if settings.addition_embed_type in (None, "text_time") else None


class UnetSkeleton(Skeleton):
    """diffusers' UNet2DConditionModel."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        widths = list(settings.block_out_channels)
        time_width = 4 * widths[0]
        self.conv_in = Conv2d(settings.in_channels, widths[0], 3, padding=1)
        self.time_proj = Waves(widths[0], settings)
        self.time_embedding = TimestepEmbedding(widths[0], time_width)
        if settings.addition_embed_type == "text_time":
            self.add_time_proj = Waves(settings.addition_time_embed_dim, settings)
            self.add_embedding = TimestepEmbedding(settings.projection_class_embeddings_input_dim, time_width)
        levels = _levels(settings)
        self.down_blocks = nn.ModuleList(_down_blocks(settings, levels, time_width))
        self.up_blocks = nn.ModuleList(_up_blocks(settings, levels[::-1], time_width))
        self.mid_block = UNetMidBlock2DCrossAttn(settings, levels[-1], time_width)
        self.conv_norm_out = nn.GroupNorm(settings.norm_num_groups, widths[0], settings.norm_eps)
        self.conv_out = Conv2d(widths[0], settings.out_channels, 3, padding=1)


class _Level:
    """The settings that the blocks at one resolution share."""

    def __init__(self, width: int, resnets: int, heads: int, layers: int) -> None:
        self.width, self.resnets, self.heads, self.layers = width, resnets, heads, layers


def _levels(settings: Settings) -> list[_Level]:
    """The levels from the largest resolution to the smallest."""
    widths = list(settings.block_out_channels)
    count = len(widths)
    if not count == len(settings.down_block_types) == len(settings.up_block_types):
        raise ValueError("block_out_channels, down_block_types and up_block_types differ in length")
    # `attention_head_dim` is diffusers' old name for the number of heads.
    per_level = (
        settings.layers_per_block,
        settings.attention_head_dim,
        settings.transformer_layers_per_block,
    )
    return [
        _Level(*values)
        for values in zip(widths, *(for_each(value, count) for value in per_level), strict=True)
    ]


def _down_blocks(settings: Settings, levels: list[_Level], time_width: int) -> list[nn.Module]:
    blocks, width = [], levels[0].width
    for level, kind in zip(levels, settings.down_block_types, strict=True):
        widths = [width] + [level.width] * (level.resnets - 1)
        block = _CLASSES[kind](settings, level, widths, time_width)
        if level is not levels[-1]:
            block.downsamplers = nn.ModuleList([Downsample2D(level.width, padding=1)])
        blocks.append(block)
        width = level.width
    return blocks


def _up_blocks(settings: Settings, levels: list[_Level], time_width: int) -> list[nn.Module]:
    """Build the up blocks, whose residual blocks also read skip connections from the down blocks."""
    blocks, width = [], levels[0].width
    for index, (level, kind) in enumerate(zip(levels, settings.up_block_types, strict=True)):
        skips = [level.width] * level.resnets + [levels[min(index + 1, len(levels) - 1)].width]
        inputs = [width] + [level.width] * level.resnets
        widths = [a + b for a, b in zip(inputs, skips, strict=True)]
        block = _CLASSES[kind](settings, level, widths, time_width)
        if level is not levels[-1]:
            block.upsamplers = nn.ModuleList([Upsample2D(level.width)])
        blocks.append(block)
        width = level.width
    return blocks


def _resnet(settings: Settings, width: int, out: int, time_width: int) -> ResnetBlock2D:
    return ResnetBlock2D(
        width, out, groups=settings.norm_num_groups, eps=settings.norm_eps, time_width=time_width
    )


class DownBlock2D(nn.Module):
    """Residual blocks at one resolution; `widths` are their input widths."""

    def __init__(self, settings: Settings, level: _Level, widths: list[int], time_width: int) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(_resnet(settings, width, level.width, time_width) for width in widths)
        self.downsamplers: nn.ModuleList | None = None
        self.upsamplers: nn.ModuleList | None = None


class UpBlock2D(DownBlock2D):
    """The same layers for an up block."""


class CrossAttnDownBlock2D(nn.Module):
    """Residual blocks with a transformer after each."""

    def __init__(self, settings: Settings, level: _Level, widths: list[int], time_width: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Transformer2DModel(settings, level) for _ in widths)
        self.resnets = nn.ModuleList(_resnet(settings, width, level.width, time_width) for width in widths)
        self.downsamplers: nn.ModuleList | None = None
        self.upsamplers: nn.ModuleList | None = None


class CrossAttnUpBlock2D(CrossAttnDownBlock2D):
    """The same layers for an up block."""


class UNetMidBlock2DCrossAttn(nn.Module):
    """A transformer between two residual blocks."""

    def __init__(self, settings: Settings, level: _Level, time_width: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Transformer2DModel(settings, level)])
        self.resnets = nn.ModuleList(
            _resnet(settings, level.width, level.width, time_width) for _ in range(2)
        )


_CLASSES: dict[str, Any] = {
    block.__name__: block for block in (DownBlock2D, CrossAttnDownBlock2D, UpBlock2D, CrossAttnUpBlock2D)
}


class Transformer2DModel(nn.Module):
    """Transformer blocks over the positions of a feature map as tokens."""

    def __init__(self, settings: Settings, level: _Level) -> None:
        super().__init__()
        width = level.width
        self.norm = nn.GroupNorm(settings.norm_num_groups, width, eps=1e-6)
        linear = settings.use_linear_projection
        self.proj_in = Linear(width, width) if linear else Conv2d(width, width, 1)
        context_width = settings.cross_attention_dim
        self.transformer_blocks = nn.ModuleList(
            BasicTransformerBlock(width, context_width, level.heads) for _ in range(level.layers)
        )
        self.proj_out = Linear(width, width) if linear else Conv2d(width, width, 1)


class BasicTransformerBlock(nn.Module):
    """Self-attention, cross-attention to the prompt, and a feed-forward layer."""

    def __init__(self, width: int, context_width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn1 = Attention(width, width, heads, biases=False)
        self.norm2 = nn.LayerNorm(width)
        self.attn2 = Attention(width, context_width, heads, biases=False)
        self.norm3 = nn.LayerNorm(width)
        self.ff = FeedForward(width)


class FeedForward(nn.Module):
    """A gated feed-forward layer of four times the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # diffusers has a dropout at index 1.
        self.net = nn.ModuleList([GEGLU(width, 4 * width), nn.Identity(), Linear(4 * width, width)])


class GEGLU(nn.Module):
    """The projection to values and their gate."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.proj = Linear(width, 2 * out)


class TimestepEmbedding(nn.Module):
    """Two layers over a timestep's sinusoidal embedding."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.linear_1 = Linear(width, out)
        self.linear_2 = Linear(out, out)

    def forward(self, waves: Tensor) -> Tensor:
        return self.linear_2(functional.silu(self.linear_1(waves)))


class Waves(nn.Module):
    """The sinusoidal embedding of a number: sines and cosines of decreasing frequencies."""

    def __init__(self, width: int, settings: Settings) -> None:
        super().__init__()
        self._half, self._shift = width // 2, settings.freq_shift
        self._cosines_first = settings.flip_sin_to_cos

    def forward(self, numbers: Tensor) -> Tensor:
        indices = torch.arange(self._half, dtype=torch.float32, device=numbers.device)
        frequencies = torch.exp(-math.log(10000) * indices / (self._half - self._shift))
        angles = numbers[:, None].float() * frequencies
        sines, cosines = torch.sin(angles), torch.cos(angles)
        return torch.cat([cosines, sines] if self._cosines_first else [sines, cosines], dim=-1)
