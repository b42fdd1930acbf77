"""What a model is made of: the configurations of its parts, without any weights.

Knows the diffusers folder layout and which class each part is; knows nothing of files of weights. Building on
torch's meta device costs no memory, so sizes and names of tensors come from the real classes, never from a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

Family = Literal["sd1", "sd2", "sdxl"]


@dataclass(frozen=True)
class Architecture:
    """A model's parts and how they were trained to work together."""

    name: str
    title: str
    family: Family
    native_size: int
    """Width and height, in pixels, that the model was trained at."""
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
    """Whether 'no negative prompt' was trained as zeros rather than as the empty text."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Architecture:
        plain = dict(values)
        plain["text_encoders"] = tuple(plain["text_encoders"])
        plain["tokenizers"] = tuple(plain["tokenizers"])
        return cls(**plain)

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "text_encoders": list(self.text_encoders), "tokenizers": list(self.tokenizers)}

    @property
    def prediction_type(self) -> str:
        return str(self.scheduler.get("prediction_type", "epsilon"))

    @property
    def latent_channels(self) -> int:
        return int(self.vae["latent_channels"])

    @property
    def vae_factor(self) -> int:
        """Pixels per latent pixel along one side."""
        return int(2 ** (len(self.vae["block_out_channels"]) - 1))

    def parts(self) -> dict[str, Mapping[str, Any]]:
        """Folder name of each part with weights → its configuration."""
        encoders = {f"text_encoder{_nth(i)}": config for i, config in enumerate(self.text_encoders)}
        return {"unet": self.unet, "vae": self.vae, **encoders}

    def build(self, part: str) -> nn.Module:
        """The part's module on the meta device: names and shapes, no memory."""
        with torch.device("meta"):
            return _module(self.parts()[part])

    def tensor_shapes(self, part: str) -> dict[str, tuple[int, ...]]:
        """Name (as published files have it) → shape of every tensor of the part."""
        if part not in self._shapes:
            tensors = self.build(part).state_dict()
            self._shapes[part] = {published_name(name, part): tuple(t.shape) for name, t in tensors.items()}
        return self._shapes[part]

    @cached_property
    def _shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        return {}

    def parameter_counts(self) -> dict[str, int]:
        return {part: sum(p.numel() for p in self.build(part).parameters()) for part in self.parts()}


def _nth(index: int) -> str:
    return "" if index == 0 else f"_{index + 1}"


def _module(config: Mapping[str, Any]) -> nn.Module:
    # Imported here: transformers and diffusers take seconds to load, and listing the catalogue needs neither.
    from diffusers import AutoencoderKL, UNet2DConditionModel  # noqa: PLC0415
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection  # noqa: PLC0415

    kind = config["_class_name"]
    settings = {key: value for key, value in config.items() if not key.startswith("_")}
    module: nn.Module
    if kind == "UNet2DConditionModel":
        module = UNet2DConditionModel(**settings)
    elif kind == "AutoencoderKL":
        module = AutoencoderKL(**settings)
    elif kind == "CLIPTextModelWithProjection":
        module = CLIPTextModelWithProjection(CLIPTextConfig(**settings))
    else:
        module = CLIPTextModel(CLIPTextConfig(**settings))
    return module


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
    """Which lineage a model belongs to, told by its text encoders: they are what the lineages differ in."""
    if len(text_encoders) > 1:
        return "sdxl"
    # Stable Diffusion 2 took OpenCLIP's encoder, which uses the exact GELU; OpenAI's CLIP uses the quick one.
    return "sd2" if text_encoders[0].get("hidden_act") == "gelu" else "sd1"
