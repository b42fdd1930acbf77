"""Catalogue models with small widths: the same blocks, layers and names, built and run in milliseconds.

Every width that differs in the real model differs here too, so that layers which exist only where widths
change (shortcuts) exist here as well. Knows nothing of any test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights

UNET_WIDTHS = {96: 32, 128: 64, 160: 96, 320: 32, 640: 64, 1280: 96} | {384: 32, 768: 64, 1536: 96}
VAE_WIDTHS = {64: 16, 96: 32, 128: 16, 256: 32, 512: 48}
TEXT_WIDTHS = {192: 32, 768: 32, 1024: 32, 1280: 48}
TEXT_LAYERS = {"CLIPTextModel": 2, "CLIPTextModelWithProjection": 3}
BYTES = {
    "vocab_size": 514,
    "max_position_embeddings": 77,
    "bos_token_id": 512,
    "eos_token_id": 513,
    "pad_token_id": 513,
}
NATIVE_SIZE = 64
CHANNELS_PER_HEAD = 16
TIME_EMBEDDING = 8


@cache
def shallow(name: str) -> Architecture:
    """The same with a UNet of two blocks each way, with attention and without, of one layer each: for tests
    of what is done with weights, whatever they are."""
    small = shrunk(name)
    unet = {
        key: value[:2]
        if isinstance(value, list) and len(value) == len(small.unet["block_out_channels"])
        else value
        for key, value in small.unet.items()
    }
    unet |= {
        "layers_per_block": 1,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    }
    if "transformer_layers_per_block" in unet:
        unet["transformer_layers_per_block"] = 1
    return replace(small, name=f"shallow-{name}", title=f"{small.title} and shallow", unet=unet)


@cache
def shrunk(name: str) -> Architecture:
    """The catalogue's `name` with small widths, for pictures of 64×64."""
    full = catalogue.architecture(name)
    encoders = tuple(_text_encoder(config) for config in full.text_encoders)
    return replace(
        full,
        name=f"shrunk-{name}",
        title=f"{full.title}, shrunk",
        native_size=NATIVE_SIZE,
        unet={**_unet(full.unet, encoders), "sample_size": NATIVE_SIZE // full.vae_factor},
        vae={**_widths(full.vae, VAE_WIDTHS), "norm_num_groups": 8, "sample_size": NATIVE_SIZE},
        text_encoders=encoders,
        tokenizers=tuple(_tokenizer(description) for description in full.tokenizers),
    )


def shrunk_folder(place: Path, name: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """A diffusers folder `place/NAME-SEED` of the shrunk model with random weights."""
    return _written(shrunk(name), place / f"{name}-{seed}", seed, dtype)


def shallow_folder(place: Path, name: str, seed: int = 0) -> Path:
    """The same of the shallow model."""
    return _written(shallow(name), place / f"{name}-{seed}", seed, torch.float32)


def _written(architecture: Architecture, folder: Path, seed: int, dtype: torch.dtype) -> Path:
    write_folder(RandomWeights(architecture, seed, dtype), folder)
    return folder


def _unet(config: Mapping[str, Any], encoders: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    small = {
        **_widths(config, UNET_WIDTHS),
        "norm_num_groups": 8,
        "cross_attention_dim": sum(encoder["hidden_size"] for encoder in encoders),
    }
    if isinstance(config["attention_head_dim"], list):
        small["attention_head_dim"] = [width // CHANNELS_PER_HEAD for width in small["block_out_channels"]]
    if "addition_time_embed_dim" in config:
        small["addition_time_embed_dim"] = TIME_EMBEDDING
        sizes = 5 if len(encoders) == 1 else 6
        small["projection_class_embeddings_input_dim"] = (
            encoders[-1]["projection_dim"] + sizes * TIME_EMBEDDING
        )
    return small


def _widths(config: Mapping[str, Any], widths: Mapping[int, int]) -> dict[str, Any]:
    return {**config, "block_out_channels": [widths[width] for width in config["block_out_channels"]]}


def _text_encoder(config: Mapping[str, Any]) -> dict[str, Any]:
    width = TEXT_WIDTHS[config["hidden_size"]]
    return {
        **config,
        # Letter by letter: tests count tokens without knowing which words the embedded model has learned.
        **(BYTES if config["vocab_size"] == 4096 else {}),
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "projection_dim": width,
        "num_attention_heads": width // CHANNELS_PER_HEAD,
        "num_hidden_layers": TEXT_LAYERS[config["_class_name"]],
    }


def _tokenizer(description: Mapping[str, Any]) -> dict[str, Any]:
    learned = description["vocabulary"] == "emoji"
    return {**description, **({"vocabulary": "bytes", "model_max_length": 77} if learned else {})}
