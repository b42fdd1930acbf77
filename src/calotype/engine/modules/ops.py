"""What a network does between its weights, each as a function that a pass may replace by a faster one.

Pictures are channels-last from end to end, so a picture is also a row of tokens and only changes its name.
Where sums and biases are done is decided here too: a kernel that reads a tensor anyway adds them for nothing.
Knows nothing of networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_MAX_SCORES = 2**26
"""Of an attention at a time: 256 MiB in single precision."""


@dataclass(frozen=True)
class DeferredSum:
    """A picture that is still to be put together: `x`, perhaps another, perhaps a number for each channel.

    Left to whoever normalises it next, who reads it anyway.
    """

    x: Tensor
    addend: Tensor | None = None
    bias: Tensor | None = None

    def materialize(self, add: Callable[..., Tensor]) -> Tensor:
        """The picture, for somebody who does not normalise it."""
        if self.addend is not None:
            return tokens_to_image(
                add(image_to_tokens(self.x), image_to_tokens(self.addend), self.bias), self.x
            )
        return self.x if self.bias is None else self.x + self.bias[:, None, None]


def group_norm(
    x: DeferredSum, norm: nn.GroupNorm, *, silu: bool, shift: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A picture normalised, and not; `shift` is added to each channel of each picture for the norm alone."""
    whole = x.materialize(add)
    return _normal(whole if shift is None else whole + shift[:, :, None, None], norm, silu=silu), whole


def group_norm_concat(x: DeferredSum, skip: Tensor, norm: nn.GroupNorm) -> tuple[Tensor, Tensor]:
    """Two pictures' channels one after the other, normalised and with SiLU; and as they are."""
    both = torch.cat([x.materialize(add), skip], dim=1)
    return _normal(both, norm, silu=True), both


def _normal(x: Tensor, norm: nn.GroupNorm, *, silu: bool) -> Tensor:
    normal = functional.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)
    return functional.silu(normal, inplace=True) if silu else normal


def layer_norm(
    x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`x` plus what is to be added to it, normalised; and not."""
    if addend is not None:
        x = add(x, addend, bias)
    return functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps), x


def add(x: Tensor, addend: Tensor, bias: Tensor | None = None) -> Tensor:
    """The sum; `bias` has a number for each channel, which is the last dimension."""
    return x + (addend if bias is None else addend + bias)


def geglu(x: Tensor) -> Tensor:
    """The first half times GELU of the second."""
    values, gates = x.chunk(2, dim=-1)
    return values * functional.gelu(gates)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x, weight, bias)


def convolution(x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
    return functional.conv2d(x, layer.weight, bias, layer.stride, layer.padding)


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """All are (rows, heads, tokens, channels); a mask is True where a key is to be seen."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def single_head_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One head as wide as the tokens, (rows, tokens, channels): too wide for any fused kernel of torch.

    The products are large matrices that the tensor cores do best by themselves, with the scores in single
    precision between them; as many queries at a time as keep those scores small.
    """
    at_once = max(1, _MAX_SCORES // (len(query) * key.shape[1]))
    scale = query.shape[-1] ** -0.5

    def seen(part: Tensor) -> Tensor:
        # In its own place, and let go of before the next part.
        return scores(part, key).mul_(scale).softmax(-1).to(value.dtype) @ value

    parts = [seen(part) for part in query.split(at_once, dim=1)]
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]


def scores(query: Tensor, key: Tensor) -> Tensor:
    """The product of every query with every key, in single precision."""
    if query.is_cuda and query.dtype != torch.float32:
        return torch.bmm(query, key.transpose(1, 2), out_dtype=torch.float32)
    return torch.bmm(query.float(), key.float().transpose(1, 2))


def upsample(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Every pixel repeated to fill the size."""
    return functional.interpolate(x, size=size, mode="nearest")


@dataclass(frozen=True)
class Operations:
    """The functions a network is run with."""

    group_norm: Callable[..., tuple[Tensor, Tensor]] = group_norm
    joined_group_norm: Callable[..., tuple[Tensor, Tensor]] = group_norm_concat
    layer_norm: Callable[..., tuple[Any, Tensor]] = layer_norm
    """What it and the gate make is for `linear` alone, which may want it in eight bits."""
    add: Callable[..., Tensor] = add
    geglu: Callable[[Tensor], Any] = geglu
    linear: Callable[..., Tensor] = linear
    """Of the transformers' layers, where nearly all of the matrix products are."""
    outer_linear: Callable[..., Tensor] = linear
    """Of shortcuts and around transformers, always in the model's precision."""
    convolution: Callable[..., Tensor] = convolution
    attention: Callable[..., Tensor] = attention
    wide_attention: Callable[..., Tensor] = single_head_attention
    enlarged: Callable[..., Tensor] = upsample


def apply_conv(do: Operations, x: Tensor, layer: nn.Conv2d) -> DeferredSum:
    """A convolution whose bias is left to whoever normalises next."""
    return DeferredSum(do.convolution(x, layer, None), bias=layer.bias)


def image_to_tokens(picture: Tensor) -> Tensor:
    """(rows, places, channels), without a copy if the picture is channels-last."""
    return picture.permute(0, 2, 3, 1).flatten(1, 2)


def tokens_to_image(tokens: Tensor, like: Tensor) -> Tensor:
    """The tokens as a channels-last picture of the same height and width as another."""
    height, width = like.shape[-2:]
    return tokens.unflatten(1, (height, width)).permute(0, 3, 1, 2)


def for_rows(x: Tensor, rows: int) -> Tensor:
    """The same again and again until there are so many rows; as they lie in memory."""
    return x if len(x) == rows else torch.cat([x] * (rows // len(x)))


def pointwise(layer: nn.Linear | nn.Conv2d) -> Tensor:
    """The weight of a layer that works on each place by itself, as a matrix."""
    return layer.weight.flatten(1)
