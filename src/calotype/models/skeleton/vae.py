"""The skeleton of Stable Diffusion's VAEs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from calotype.models.skeleton.config import Settings, with_defaults
from calotype.models.skeleton.fallback import Skeleton
from calotype.models.skeleton.init_free_layers import Conv2d
from calotype.models.skeleton.layers import Attention, Downsample2D, ResnetBlock2D, Upsample2D

_FREE: dict[str, Any] = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ("DownEncoderBlock2D",),
    "up_block_types": ("UpDecoderBlock2D",),
    "block_out_channels": (64,),
    "layers_per_block": 1,
    "latent_channels": 4,
    "norm_num_groups": 32,
    "scaling_factor": 0.18215,
    "shift_factor": None,
    "latents_mean": None,
    "latents_std": None,
    "force_upcast": True,
    "use_quant_conv": True,
    "use_post_quant_conv": True,
}
_FIXED: dict[str, Any] = {"act_fn": "silu", "mid_block_add_attention": True}
_IGNORED = ("sample_size",)
_EPS = 1e-6


def settings_of(config: Mapping[str, Any]) -> Settings | None:
    """Parse the configuration; None if it has unsupported settings."""
    settings = with_defaults(config, _FREE, _FIXED, _IGNORED)
    if settings is None or {*settings.down_block_types} != {"DownEncoderBlock2D"}:
        return None
    levels = len(settings.block_out_channels)
    equal = len(settings.down_block_types) == len(settings.up_block_types) == levels
    return settings if equal and {*settings.up_block_types} == {"UpDecoderBlock2D"} else None


class VaeSkeleton(Skeleton):
    """diffusers' AutoencoderKL."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        latent = settings.latent_channels
        self.encoder = _Encoder(settings)
        self.decoder = _Decoder(settings)
        self.quant_conv = Conv2d(2 * latent, 2 * latent, 1) if settings.use_quant_conv else None
        self.post_quant_conv = Conv2d(latent, latent, 1) if settings.use_post_quant_conv else None

    def decode(self, *inputs: Any, **named: Any) -> Any:
        """Decode with diffusers' module."""
        return self.theirs().decode(*inputs, **named)


def _resnet(settings: Settings, width: int, out: int) -> ResnetBlock2D:
    return ResnetBlock2D(width, out, groups=settings.norm_num_groups, eps=_EPS, time_width=None)


class _Encoder(nn.Module):
    """Maps pixels to the mean and log variance of latents."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        widths = list(settings.block_out_channels)
        self.conv_in = Conv2d(settings.in_channels, widths[0], 3, padding=1)
        self.down_blocks = nn.ModuleList()
        for index, (width, out) in enumerate(zip([widths[0], *widths], widths, strict=False)):
            block = DownEncoderBlock2D(settings, width, out)
            if index < len(widths) - 1:
                block.downsamplers = nn.ModuleList([Downsample2D(out, padding=0)])
            self.down_blocks.append(block)
        self.mid_block = UNetMidBlock2D(settings, widths[-1])
        self.conv_norm_out = nn.GroupNorm(settings.norm_num_groups, widths[-1], _EPS)
        self.conv_out = Conv2d(widths[-1], 2 * settings.latent_channels, 3, padding=1)


class _Decoder(nn.Module):
    """Maps latents to pixels."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        widths = list(settings.block_out_channels)[::-1]
        self.conv_in = Conv2d(settings.latent_channels, widths[0], 3, padding=1)
        self.up_blocks = nn.ModuleList()
        for index, (width, out) in enumerate(zip([widths[0], *widths], widths, strict=False)):
            block = UpDecoderBlock2D(settings, width, out)
            if index < len(widths) - 1:
                block.upsamplers = nn.ModuleList([Upsample2D(out)])
            self.up_blocks.append(block)
        self.mid_block = UNetMidBlock2D(settings, widths[0])
        self.conv_norm_out = nn.GroupNorm(settings.norm_num_groups, widths[-1], _EPS)
        self.conv_out = Conv2d(widths[-1], settings.out_channels, 3, padding=1)


class DownEncoderBlock2D(nn.Module):
    """Residual blocks at one resolution."""

    def __init__(self, settings: Settings, width: int, out: int) -> None:
        super().__init__()
        widths = [width] + [out] * (settings.layers_per_block - 1)
        self.resnets = nn.ModuleList(_resnet(settings, width, out) for width in widths)
        self.downsamplers: nn.ModuleList | None = None


class UpDecoderBlock2D(nn.Module):
    """Residual blocks of the decoder: one more than in the encoder."""

    def __init__(self, settings: Settings, width: int, out: int) -> None:
        super().__init__()
        widths = [width] + [out] * settings.layers_per_block
        self.resnets = nn.ModuleList(_resnet(settings, width, out) for width in widths)
        self.upsamplers: nn.ModuleList | None = None


class UNetMidBlock2D(nn.Module):
    """Self-attention between two residual blocks."""

    def __init__(self, settings: Settings, width: int) -> None:
        super().__init__()
        groups = settings.norm_num_groups
        self.attentions = nn.ModuleList([Attention(width, width, 1, biases=True, groups=groups)])
        self.resnets = nn.ModuleList(_resnet(settings, width, width) for _ in range(2))
