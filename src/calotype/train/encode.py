"""Captions and pictures turned into what the UNet is trained on. Knows nothing of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calotype.models.model import Model

_MAX_INDEX = 2**31 - 1
_MAX_CAPTIONS = 2**19
"""Whose tokens are remembered: some 300 MB with 77 tokens each."""
_ROWS: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
"""Token numbers by tokenizer and caption, as bytes, which take the least memory and time to put together.
Captions come again every epoch, and a small model's step is over before a batch of them is tokenised."""


@torch.no_grad()
def encode_captions(model: Model, captions: Sequence[str]) -> tuple[Tensor, Tensor | None]:
    """Context and pooled embedding of each caption, cut at one window as the models were trained."""
    return encode_tokens(model, tokenize(model, captions))


def tokenize(model: Model, captions: Sequence[str]) -> list[Tensor]:
    """Token numbers of the captions, one tensor per text encoder."""
    found = [_token_rows(tokenizer, captions) for tokenizer in model.tokenizers]
    if model.device.type == "cuda":
        # From anywhere else a copy would wait until the device has done all it was asked before.
        found = [ids.pin_memory() for ids in found]
    return [ids.to(model.device, non_blocking=True) for ids in found]


def _token_rows(tokenizer: Any, captions: Sequence[str]) -> Tensor:
    rows = _ROWS.setdefault(tokenizer, {})
    new = [caption for caption in dict.fromkeys(captions) if caption not in rows]
    if len(rows) + len(new) > _MAX_CAPTIONS:
        rows.clear()
        new = list(dict.fromkeys(captions))
    if new:
        numbers = tokenizer(new, padding="max_length", truncation=True, return_tensors="np").input_ids
        numbered = zip(new, numbers.astype("int32"), strict=True)
        rows.update((caption, row.tobytes()) for caption, row in numbered)
    found = bytearray(b"".join(rows[caption] for caption in captions))
    return torch.frombuffer(found, dtype=torch.int32).view(len(captions), -1).long()


def encode_tokens(model: Model, tokens: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """`encode_captions` from token numbers on, with gradients where they are wanted."""
    contexts, pooled = [], None
    # Asked for only where they are read: how the library collects them breaks a compiled network in pieces.
    inner_layers = model.architecture.family == "sdxl"
    for encoder, ids in zip(model.text_encoders, tokens, strict=True):
        output = encoder(input_ids=ids, output_hidden_states=inner_layers)
        if inner_layers:
            contexts.append(output.hidden_states[-2])
            pooled = getattr(output, "text_embeds", pooled)
        else:
            contexts.append(output.last_hidden_state)
    return torch.cat(contexts, dim=-1), pooled


@torch.no_grad()
def encode_images(model: Model, pixels: Tensor, posterior: Tensor) -> Tensor:
    """Latents drawn from the autoencoder's distribution with the given noise, in the UNet's scale."""
    return sample_latents(model, image_moments(model, pixels), posterior)


@torch.no_grad()
def image_moments(model: Model, pixels: Tensor) -> Tensor:
    """What the autoencoder makes of each picture: mean and deviation of its latents, in its own precision."""
    at_once = _most_at_once(pixels, model.vae.config.block_out_channels[0])
    parts = pixels.to(next(model.vae.parameters()).dtype).split(at_once)
    found = [model.vae.encode(part).latent_dist for part in parts]
    return torch.cat([torch.stack([each.mean, each.std], dim=1) for each in found])


def sample_latents(model: Model, moments: Tensor, posterior: Tensor) -> Tensor:
    """Latents of these moments for this noise, in the UNet's scale."""
    config = model.vae.config
    mean, deviation = moments.float().unbind(dim=1)
    drawn = mean + deviation * posterior
    return (drawn - float(config.shift_factor or 0.0)) * float(config.scaling_factor)


def _most_at_once(pixels: Tensor, widest: int) -> int:
    """How many pictures to encode together, in equal parts.

    The encoder's first layers hold `widest` numbers for each pixel. While their places can be counted in 32
    bits a compiled kernel does so; past that, every address costs it twice.
    """
    most = max(1, _MAX_INDEX // (widest * pixels[0, 0].numel()))
    return next(size for size in range(min(most, len(pixels)), 0, -1) if len(pixels) % size == 0)
