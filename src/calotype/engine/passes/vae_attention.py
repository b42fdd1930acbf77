"""Attention of the autoencoders: one head of 512 channels, which no fused kernel of torch is fast at.

At that width the products are large matrices that the tensor cores do best by themselves, so they are done
one by one, with the scores in single precision between them. The scores are a number for every pair of
places: worth it up to 64×64 places, past which memory would be the price.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from calotype.engine.modules.ops import scores

if TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention

_WIDEST_FUSED = 256
_MAX_PLACES = 64 * 64


class VaeAttention:
    """Takes the place of diffusers' processor in an attention over a picture with one head."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual
        """For pictures that are too large."""

    def __call__(
        self,
        attention: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: None = None,
        attention_mask: None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        del encoder_hidden_states, attention_mask  # a picture looks at nothing but itself
        n, c, h, w = hidden_states.shape
        if h * w > _MAX_PLACES:
            return self._usual(attention, hidden_states, temb=temb)
        tokens = attention.group_norm(hidden_states).permute(0, 2, 3, 1).reshape(n, h * w, c)
        query, key, value = (part(tokens) for part in (attention.to_q, attention.to_k, attention.to_v))
        shares = (scores(query, key) / math.sqrt(c)).softmax(-1).to(value.dtype)
        mixed = attention.to_out[0](torch.bmm(shares, value))
        return mixed.reshape(n, h, w, c).permute(0, 3, 1, 2) + hidden_states


def use_vae_attention(network: nn.Module) -> None:
    """Replace the attentions over pictures that have one wide head."""
    from diffusers.models.attention_processor import Attention  # noqa: PLC0415 - seconds to import

    for part in network.modules():
        if isinstance(part, Attention) and part.heads == 1 and part.inner_dim > _WIDEST_FUSED:
            plain = part.residual_connection and part.rescale_output_factor == 1 and part.spatial_norm is None
            if plain and part.group_norm is not None:
                part.set_processor(VaeAttention(part.processor))
