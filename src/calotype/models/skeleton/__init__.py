"""The parts of a model by their names and weights, without the libraries that define them.

diffusers and transformers take seconds to import, most of the time to a first picture, and where our own
forward passes run they are needed for nothing but the names of weights. So a UNet and an autoencoder are
outlined here: the same layers under the same names. Whoever does ask one for diffusers' forward pass gets it,
on the same weights, and waits for the import then (`borrowing.py`). Text encoders are small enough to be
whole (`text.py`).

Only what Stable Diffusion's configurations say is known; for any other `build_skeleton` has nothing, and the
libraries' classes are used. Reading order: `settings.py`, `borrowing.py`, `blank.py`, `layers.py`, `unet.py`,
`autoencoder.py`, `text.py`.
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
    """The part of this configuration; None where it says something that is not known here."""
    kind = str(config["_class_name"])
    settings = _KINDS[kind](config)
    return None if settings is None else _MODULES[kind](settings)
