"""CLIP's text encoders: tokens that look at those before them. Knows nothing of prompts."""

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
# Of training, of generating text, and of whoever wrote the file.
_IGNORED = (
    *("attention_dropout", "dropout", "initializer_factor", "initializer_range"),
    *("architectures", "bos_token_id", "dtype", "model_type", "pad_token_id", "torch_dtype"),
    "transformers_version",
)
MAX_IS_END = 2
"""An end mark that means the largest token there is, from configurations that had it wrong."""


def settings_of(config: Mapping[str, Any]) -> Settings | None:
    """None for text encoders with anything that is not known here."""
    settings = with_defaults(config, _FREE, {}, _IGNORED)
    return settings if settings is not None and settings.hidden_act in _ACTIVATIONS else None


@dataclass(frozen=True)
class Encoded:
    """What an encoder says to windows of tokens, by transformers' names."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...]
    """Before the first layer and after each."""
    pooler_output: Tensor
    text_embeds: Tensor | None = None


class TextEncoder(nn.Module):
    """transformers' CLIPTextModel, with the names that published files have."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.config = settings
        self.text_model = _Body(settings)

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of tokens."""
        return self.text_model.embeddings.token_embedding

    def forward(self, input_ids: Tensor, *, output_hidden_states: bool = True) -> Encoded:
        del output_hidden_states  # nothing is saved by leaving them out
        return self.text_model(input_ids)


class ProjectingTextEncoder(TextEncoder):
    """transformers' CLIPTextModelWithProjection: a summary beside the tokens."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.text_projection = Linear(settings.hidden_size, settings.projection_dim, bias=False)

    def forward(self, input_ids: Tensor, *, output_hidden_states: bool = True) -> Encoded:
        said = super().forward(input_ids, output_hidden_states=output_hidden_states)
        summary = self.text_projection(said.pooler_output)
        return Encoded(said.last_hidden_state, said.hidden_states, said.pooler_output, summary)


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
        marks = input_ids if self.eos_token_id == MAX_IS_END else input_ids == self.eos_token_id
        # The first of several: what follows only fills the window.
        ends = marks.int().argmax(dim=-1)
        return Encoded(last, states, last[torch.arange(len(last), device=last.device), ends])


class _Embeddings(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.token_embedding = Embedding(settings.vocab_size, settings.hidden_size)
        self.position_embedding = Embedding(settings.max_position_embeddings, settings.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        places = torch.arange(input_ids.shape[-1], device=input_ids.device)
        return self.token_embedding(input_ids) + self.position_embedding(places)


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
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out_proj(seen.transpose(1, 2).flatten(2))


class _Mlp(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._activation = _ACTIVATIONS[settings.hidden_act]
        self.fc1 = Linear(settings.hidden_size, settings.intermediate_size)
        self.fc2 = Linear(settings.intermediate_size, settings.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self._activation(self.fc1(x)))


def _quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's short form of it."""
    return x * torch.sigmoid(1.702 * x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"quick_gelu": _quick_gelu, "gelu": gelu}
