"""CLIP's text encoders: transformers with causal attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from calotype.models.skeleton.config import Settings, with_defaults
from calotype.models.skeleton.init_free_layers import Embedding, Linear

_FREE: dict[str, Any] = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "projection_dim": 512,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "eos_token_id": 49407,
}
# Settings of training and text generation, and notes on how the file was saved.
_IGNORED = (
    *("attention_dropout", "dropout", "initializer_factor", "initializer_range"),
    *("architectures", "bos_token_id", "dtype", "model_type", "pad_token_id", "torch_dtype"),
    "transformers_version",
)
MAX_IS_END = 2
"""An end token id from incorrect configurations; the end is then the largest token id in the text."""


def settings_of(config: Mapping[str, Any]) -> Settings | None:
    """Parse the configuration; None if it has unsupported settings."""
    settings = with_defaults(config, _FREE, {}, _IGNORED)
    return settings if settings is not None and settings.hidden_act in _ACTIVATIONS else None


@dataclass(frozen=True)
class Encoded:
    """An encoder's output for windows of tokens, with transformers' names."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...]
    """The states before the first layer and after each layer."""
    pooler_output: Tensor
    text_embeds: Tensor | None = None


class TextEncoder(nn.Module):
    """transformers' CLIPTextModel, with the names that published files have."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.config = settings
        self.text_model = _Body(settings)

    def get_input_embeddings(self) -> nn.Embedding:
        """The token embedding table."""
        return self.text_model.embeddings.token_embedding

    def forward(self, input_ids: Tensor, *, output_hidden_states: bool = True) -> Encoded:
        del output_hidden_states  # they cost nothing
        return self.text_model(input_ids)


class ProjectingTextEncoder(TextEncoder):
    """transformers' CLIPTextModelWithProjection: also returns a pooled text embedding."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.text_projection = Linear(settings.hidden_size, settings.projection_dim, bias=False)

    def forward(self, input_ids: Tensor, *, output_hidden_states: bool = True) -> Encoded:
        encoded = super().forward(input_ids, output_hidden_states=output_hidden_states)
        pooled = self.text_projection(encoded.pooler_output)
        return Encoded(encoded.last_hidden_state, encoded.hidden_states, encoded.pooler_output, pooled)


class _Body(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embeddings = _Embeddings(settings)
        self.encoder = _Layers(settings)
        self.final_layer_norm = nn.LayerNorm(settings.hidden_size, settings.layer_norm_eps)
        self.eos_token_id: int = settings.eos_token_id

    def forward(self, input_ids: Tensor) -> Encoded:
        states = self.encoder(self.embeddings(input_ids))
        last = self.final_layer_norm(states[-1])
        scores = input_ids if self.eos_token_id == MAX_IS_END else input_ids == self.eos_token_id
        # The first of several end tokens: the others are padding.
        ends = scores.int().argmax(dim=-1)
        return Encoded(last, states, last[torch.arange(len(last), device=last.device), ends])


class _Embeddings(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.token_embedding = Embedding(settings.vocab_size, settings.hidden_size)
        self.position_embedding = Embedding(settings.max_position_embeddings, settings.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[-1], device=input_ids.device)
        return self.token_embedding(input_ids) + self.position_embedding(positions)


class _Layers(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(settings) for _ in range(settings.num_hidden_layers))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return tuple(states)


class _Layer(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.self_attn = _Attention(settings)
        self.layer_norm1 = nn.LayerNorm(settings.hidden_size, settings.layer_norm_eps)
        self.mlp = _Mlp(settings)
        self.layer_norm2 = nn.LayerNorm(settings.hidden_size, settings.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class _Attention(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.hidden_size
        self._heads = settings.num_attention_heads
        self.k_proj = Linear(width, width)
        self.v_proj = Linear(width, width)
        self.q_proj = Linear(width, width)
        self.out_proj = Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out_proj(attended.transpose(1, 2).flatten(2))


class _Mlp(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._activation = _ACTIVATIONS[settings.hidden_act]
        self.fc1 = Linear(settings.hidden_size, settings.intermediate_size)
        self.fc2 = Linear(settings.intermediate_size, settings.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self._activation(self.fc1(x)))


def _quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's approximation of GELU."""
    return x * torch.sigmoid(1.702 * x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"quick_gelu": _quick_gelu, "gelu": gelu}
