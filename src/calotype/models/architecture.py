"""Describes a model without its weights: the configurations of its parts.

Tensor names and shapes come from modules built on torch's meta device, which costs no memory, not from lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import nn

from calotype.core.errors import ModelFileError
from calotype.models.hf_classes import library_module
from calotype.models.skeleton import build_skeleton

Family = Literal["sd1", "sd2", "sdxl"]

UNET, VAE = "UNet2DConditionModel", "AutoencoderKL"
TEXT_ENCODERS = ("CLIPTextModel", "CLIPTextModelWithProjection")

# Settings that our code reads by name; all others may be left to the classes' defaults.
_UNET_SETTINGS = (
    "in_channels",
    "block_out_channels",
    "layers_per_block",
    "down_block_types",
    "up_block_types",
)
REQUIRED_SETTINGS = {
    UNET: (*_UNET_SETTINGS, "cross_attention_dim"),
    VAE: ("latent_channels", "block_out_channels", "layers_per_block"),
    TEXT_ENCODERS[0]: ("hidden_size", "num_hidden_layers"),
    TEXT_ENCODERS[1]: ("hidden_size", "num_hidden_layers"),
}

# `attention_head_dim` is diffusers' old name for the number of heads.
_UNET_WIDTHS = ("block_out_channels", "cross_attention_dim", "attention_head_dim")
_TEXT_WIDTHS = ("hidden_size", "intermediate_size", "projection_dim", "num_attention_heads")
_WIDTHS = (*_UNET_WIDTHS, *_TEXT_WIDTHS)


@dataclass(frozen=True)
class Architecture:
    """The parts of a model and how they were trained to work together."""

    name: str
    title: str
    family: Family
    native_size: int
    """Training width and height in pixels."""
    hub_id: str | None
    licence: str
    pipeline: str
    """The diffusers pipeline class that runs the same folder."""
    unet: Mapping[str, Any]
    vae: Mapping[str, Any]
    text_encoders: tuple[Mapping[str, Any], ...]
    tokenizers: tuple[Mapping[str, Any], ...]
    scheduler: Mapping[str, Any]
    force_zeros_for_empty_prompt: bool = False
    """Whether training encoded "no negative prompt" as zeros rather than as the empty text."""

    def __post_init__(self) -> None:
        """Configurations come from untrusted files: raise ValueError for what they leave out."""
        if self.family not in get_args(Family):
            raise ValueError(f"family {self.family!r} is unknown; known are {', '.join(get_args(Family))}")
        if not isinstance(self.native_size, int) or self.native_size <= 0:
            raise ValueError(f"native_size {self.native_size!r} is not a number of pixels")
        if not self.text_encoders or len(self.text_encoders) != len(self.tokenizers):
            counts = f"{len(self.text_encoders)} text encoders and {len(self.tokenizers)} tokenizers"
            raise ValueError(f"{counts}: every text encoder needs a tokenizer, and there must be one")
        for part, config in self.parts().items():
            _check_settings(part, config)
        if "_class_name" not in self.scheduler:
            raise ValueError("the scheduler has no '_class_name'")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Architecture:
        """The inverse of `as_dict`; raises ValueError for values that describe no architecture."""
        try:
            lists = {name: tuple(values[name]) for name in ("text_encoders", "tokenizers")}
            return cls(**{**values, **lists})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the description of a model: {error}") from error

    def as_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "text_encoders": list(self.text_encoders), "tokenizers": list(self.tokenizers)}

    @property
    def prediction_type(self) -> str:
        """The UNet's training target: "epsilon" or "v_prediction"."""
        return str(self.scheduler.get("prediction_type", "epsilon"))

    def predicting(self, prediction_type: str | None) -> Architecture:
        """A copy with another prediction type; None keeps it."""
        if prediction_type in (None, self.prediction_type):
            return self
        return replace(self, scheduler={**self.scheduler, "prediction_type": prediction_type})

    @property
    def latent_channels(self) -> int:
        return int(self.vae["latent_channels"])

    @property
    def vae_factor(self) -> int:
        """Pixels per latent pixel along one side."""
        return vae_factor(self.vae)

    @property
    def reads_aesthetic_score(self) -> bool:
        """Whether the UNet takes an aesthetic score and no target size, as SDXL's refiner: five numbers."""
        if self.family != "sdxl":
            return False
        pooled, per_number = self.text_encoders[-1]["projection_dim"], self.unet["addition_time_embed_dim"]
        return bool(self.unet["projection_class_embeddings_input_dim"] == pooled + 5 * per_number)

    def widened(self, factor: int) -> Architecture:
        """A copy whose UNet and text encoders have `factor` times the width and attention heads.

        The VAE stays the same, so latents mean the same at every width.
        """
        if factor == 1:
            return self
        unet, encoders = dict(self.unet), [dict(encoder) for encoder in self.text_encoders]
        if "projection_class_embeddings_input_dim" in unet:
            # The pooled text embedding grows; the size embeddings concatenated with it do not.
            unet["projection_class_embeddings_input_dim"] += (factor - 1) * encoders[-1]["projection_dim"]
        for config in (unet, *encoders):
            config |= {key: _scaled(config[key], factor) for key in _WIDTHS if key in config}
        return replace(
            self,
            name=f"{self.name}-{factor}x",
            title=f"{self.title}, {factor} times as wide",
            unet=unet,
            text_encoders=tuple(encoders),
        )

    def parts(self) -> dict[str, Mapping[str, Any]]:
        """Folder name of each part with weights → its configuration."""
        encoders = {
            f"text_encoder{suffix}": encoder
            for suffix, encoder in zip(self.endings(), self.text_encoders, strict=True)
        }
        return {"unet": self.unet, "vae": self.vae, **encoders}

    def endings(self) -> list[str]:
        """The suffix of each encoder's `text_encoder` and `tokenizer` folders."""
        # SDXL's refiner has the second encoder only, under the second encoder's name.
        first = 1 if self.family == "sdxl" and len(self.text_encoders) == 1 else 0
        return [nth(first + index) for index in range(len(self.text_encoders))]

    def build(self, part: str) -> nn.Module:
        """Build diffusers' or transformers' module of the part on the meta device, which takes no memory."""
        return self._build_on_meta(part, library_module)

    def outline(self, part: str) -> nn.Module:
        """Build our skeleton of the part, with the same names and shapes, or else the library's module."""
        return self._build_on_meta(part, lambda config: build_skeleton(config) or library_module(config))

    def _build_on_meta(self, part: str, factory: Callable[[Mapping[str, Any]], nn.Module]) -> nn.Module:
        config = self.parts()[part]
        try:
            with torch.device("meta"):
                return factory(config)
        except Exception as error:  # the classes raise any type of error for inconsistent settings
            raise ModelFileError(self.name, f"its {part} configuration builds no model: {error}") from error

    def tensor_shapes(self, part: str) -> dict[str, tuple[int, ...]]:
        """Published name → shape of every tensor of the part."""
        if part not in self._shapes:
            tensors = self.outline(part).state_dict()
            self._shapes[part] = {published_name(name, part): tuple(t.shape) for name, t in tensors.items()}
        return self._shapes[part]

    @cached_property
    def _shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        return {}

    def parameter_counts(self) -> dict[str, int]:
        """The number of parameters of each part."""
        return {part: sum(p.numel() for p in self.outline(part).parameters()) for part in self.parts()}


def _scaled(value: int | Sequence[int], factor: int) -> int | list[int]:
    return value * factor if isinstance(value, int) else [number * factor for number in value]


def nth(index: int) -> str:
    """The suffix of diffusers' folder names: none for the first text encoder or tokenizer, then `_2`, …"""
    return "" if index == 0 else f"_{index + 1}"


def vae_factor(vae: Mapping[str, Any]) -> int:
    """Pixels per latent pixel along one side, for a VAE of this configuration."""
    return int(2 ** (len(vae["block_out_channels"]) - 1))


def _check_settings(part: str, config: Mapping[str, Any]) -> None:
    supported = {"unet": (UNET,), "vae": (VAE,)}.get(part, TEXT_ENCODERS)
    kind = str(config.get("_class_name"))
    if kind not in supported:
        raise ValueError(f"the {part} is a {kind}, only {' and '.join(supported)} can be run")
    missing = [key for key in REQUIRED_SETTINGS[kind] if config.get(key) is None]
    if missing:
        raise ValueError(f"the {part} configuration lacks {', '.join(missing)}")


def published_name(module_name: str, part: str) -> str:
    """The name a tensor has in published files.

    Newer transformers dropped the `text_model.` level from CLIPTextModel; files on disk kept it.
    """
    if not part.startswith("text_encoder") or module_name.startswith(("text_model.", "text_projection.")):
        return module_name
    return f"text_model.{module_name}"


def module_name(published: str, module: nn.Module) -> str:
    """The inverse of `published_name` for the installed version of the class."""
    if published.startswith("text_model.") and not hasattr(module, "text_model"):
        return published.removeprefix("text_model.")
    return published


def family_of(text_encoders: Sequence[Mapping[str, Any]]) -> Family:
    """The family of a model, which its text encoders determine."""
    if len(text_encoders) > 1 or text_encoders[0].get("_class_name") == TEXT_ENCODERS[1]:
        return "sdxl"
    # Stable Diffusion 2 uses OpenCLIP's encoder with the exact GELU; OpenAI's CLIP uses the quick one.
    return "sd2" if text_encoders[0].get("hidden_act") == "gelu" else "sd1"
