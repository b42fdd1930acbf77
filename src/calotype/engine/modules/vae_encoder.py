"""An autoencoder's encoder over its weights, in its own precision and with diffusers' numbers to the bit.

For outlines, which have no forward pass: one evaluation is not worth more. Knows nothing of latents' scale.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention, silu


def latent_mean(vae: Any, pixels: Tensor) -> Tensor:
    """The likeliest latents of pixels, in the autoencoder's own scale."""
    encoder = vae.encoder
    x = encoder.conv_in(pixels)
    for block in encoder.down_blocks:
        for resnet in block.resnets:
            x = _residual(resnet, x)
        for downsampler in block.downsamplers or []:
            # On two sides alone: so they were trained.
            x = downsampler.conv(pad(x, (0, 1, 0, 1)))
    first, last = encoder.mid_block.resnets
    x = _residual(last, _looked(encoder.mid_block.attentions[0], _residual(first, x)))
    moments = encoder.conv_out(silu(encoder.conv_norm_out(x)))
    if vae.quant_conv is not None:
        moments = vae.quant_conv(moments)
    return moments.chunk(2, dim=1)[0]


def _residual(block: Any, x: Tensor) -> Tensor:
    inside = block.conv1(silu(block.norm1(x)))
    inside = block.conv2(silu(block.norm2(inside)))
    return (x if block.conv_shortcut is None else block.conv_shortcut(x)) + inside


def _looked(block: Any, x: Tensor) -> Tensor:
    """Every place looks at every other, with one wide head."""
    tokens = block.group_norm(x.flatten(2)).transpose(1, 2)
    query, key, value = (layer(tokens)[:, None] for layer in (block.to_q, block.to_k, block.to_v))
    seen = block.to_out[0](scaled_dot_product_attention(query, key, value)[:, 0])
    return seen.transpose(1, 2).reshape(x.shape) + x
