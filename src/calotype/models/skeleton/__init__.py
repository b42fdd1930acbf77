"""Builds the modules of a model's parts without importing diffusers and transformers.

Importing these libraries takes seconds, most of the time to the first image, and the native forward passes
need only the names of their weights. So the skeletons of UNet and VAE have the same layers under the same
names. A call of a skeleton's forward pass imports diffusers and runs its module on the same weights
(`fallback.py`). Text encoders are small enough to be complete (`clip_text.py`).

The skeletons support the configurations of Stable Diffusion; for others `build_skeleton` returns None, and
the libraries' classes are used. Reading order: `config.py`, `fallback.py`, `init_free_layers.py`,
`layers.py`, `unet.py`, `vae.py`, `clip_text.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from calotype.models.skeleton import clip_text, unet, vae
from calotype.models.skeleton.config import Settings

_KINDS: dict[str, Callable[[Mapping[str, Any]], Settings | None]] = {
    "UNet2DConditionModel": unet.settings_of,
    "AutoencoderKL": vae.settings_of,
    "CLIPTextModel": clip_text.settings_of,
    "CLIPTextModelWithProjection": clip_text.settings_of,
}
_MODULES: dict[str, Callable[[Settings], nn.Module]] = {
    "UNet2DConditionModel": unet.UnetSkeleton,
    "AutoencoderKL": vae.VaeSkeleton,
    "CLIPTextModel": clip_text.TextEncoder,
    "CLIPTextModelWithProjection": clip_text.ProjectingTextEncoder,
}


def build_skeleton(config: Mapping[str, Any]) -> nn.Module | None:
    """Build the part of this configuration; None for a configuration that the skeletons do not support."""
    kind = str(config["_class_name"])
    settings = _KINDS[kind](config)
    return None if settings is None else _MODULES[kind](settings)
