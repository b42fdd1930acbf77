"""Encode captions and images into the latents and embeddings that the UNet is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calotype.models.model import Model

_MAX_INDEX = 2**31 - 1
_MAX_CAPTIONS = 2**19
"""The number of captions with cached tokens: some 300 MB with 77 tokens each."""
_TOKEN_CACHE: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
"""Token ids by tokenizer and caption, as bytes, which take the least memory and are fastest to concatenate.
Captions repeat every epoch, and a small model's step is shorter than tokenizing a batch of captions."""


@torch.no_grad()
def encode_captions(model: Model, captions: Sequence[str]) -> tuple[Tensor, Tensor | None]:
    """Context and pooled embedding of each caption, truncated to one window as in the models' training."""
    return encode_tokens(model, tokenize(model, captions))


def tokenize(model: Model, captions: Sequence[str]) -> list[Tensor]:
    """Token ids of the captions, one tensor per text encoder."""
    results = [_token_rows(tokenizer, captions) for tokenizer in model.tokenizers]
    if model.device.type == "cuda":
        # A copy from pageable memory would wait for all queued work of the device.
        results = [ids.pin_memory() for ids in results]
    return [ids.to(model.device, non_blocking=True) for ids in results]


def _token_rows(tokenizer: Any, captions: Sequence[str]) -> Tensor:
    rows = _TOKEN_CACHE.setdefault(tokenizer, {})
    new = [caption for caption in dict.fromkeys(captions) if caption not in rows]
    if len(rows) + len(new) > _MAX_CAPTIONS:
        rows.clear()
        new = list(dict.fromkeys(captions))
    if new:
        token_ids = tokenizer(new, padding="max_length", truncation=True, return_tensors="np").input_ids
        new_rows = zip(new, token_ids.astype("int32"), strict=True)
        rows.update((caption, row.tobytes()) for caption, row in new_rows)
    joined = bytearray(b"".join(rows[caption] for caption in captions))
    return torch.frombuffer(joined, dtype=torch.int32).view(len(captions), -1).long()


def encode_tokens(model: Model, tokens: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """`encode_captions` starting from token ids, with gradients where they are needed."""
    contexts, pooled = [], None
    # Requested only where they are read: the way transformers collects them splits a compiled graph.
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
    """Latents sampled from the autoencoder's distribution with the given noise, in the UNet's scale."""
    return sample_latents(model, image_moments(model, pixels), posterior)


@torch.no_grad()
def image_moments(model: Model, pixels: Tensor) -> Tensor:
    """Mean and standard deviation of each image's latents, in the autoencoder's own precision."""
    batch_size = _max_batch_size(pixels, model.vae.config.block_out_channels[0])
    parts = pixels.to(next(model.vae.parameters()).dtype).split(batch_size)
    results = [model.vae.encode(part).latent_dist for part in parts]
    return torch.cat([torch.stack([result.mean, result.std], dim=1) for result in results])


def sample_latents(model: Model, moments: Tensor, posterior: Tensor) -> Tensor:
    """Latents with these moments for this noise, in the UNet's scale."""
    config = model.vae.config
    mean, deviation = moments.float().unbind(dim=1)
    drawn = mean + deviation * posterior
    return (drawn - float(config.shift_factor or 0.0)) * float(config.scaling_factor)


def _max_batch_size(pixels: Tensor, widest: int) -> int:
    """The number of images to encode together, in equal batches.

    The encoder's first layers hold `widest` numbers per pixel. While their indices fit into 32 bits, a
    compiled kernel uses 32-bit addresses; beyond that, every address computation costs twice as much.
    """
    limit = max(1, _MAX_INDEX // (widest * pixels[0, 0].numel()))
    return next(size for size in range(min(limit, len(pixels)), 0, -1) if len(pixels) % size == 0)
