"""Attention as the transformers of these UNets have it, and no more, for training.

diffusers' own divides by a factor that is one here. Going forward a compiler does that beside something
else; in the gradient it is a copy of every token, between two matrix products that cannot take it in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention


class UnscaledAttentionProcessor:
    """Takes the place of diffusers' processor in an attention over tokens."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual
        """For who has a mask."""

    def __call__(
        self,
        attention: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        if attention_mask is not None:
            return self._usual(attention, hidden_states, encoder_hidden_states, attention_mask, temb)
        seen = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        asked = (attention.to_q(hidden_states), attention.to_k(seen), attention.to_v(seen))
        n, width = len(hidden_states), asked[0].shape[-1] // attention.heads
        query, key, value = (each.view(n, -1, attention.heads, width).transpose(1, 2) for each in asked)
        mixed = scaled_dot_product_attention(query, key, value)
        output, dropout = attention.to_out
        return dropout(output(mixed.transpose(1, 2).reshape(n, -1, attention.heads * width)))


def use_unscaled_attention(network: nn.Module) -> None:
    """Replace the attentions over tokens that do nothing besides."""
    from diffusers.models.attention_processor import Attention, AttnProcessor2_0  # noqa: PLC0415 - seconds

    for part in network.modules():
        if isinstance(part, Attention) and type(part.processor) is AttnProcessor2_0 and _is_plain(part):
            part.set_processor(UnscaledAttentionProcessor(part.processor))


def _is_plain(attention: Attention) -> bool:
    extras = (attention.group_norm, attention.spatial_norm, attention.norm_q, attention.norm_cross)
    return not any(extras) and not attention.residual_connection and attention.rescale_output_factor == 1
