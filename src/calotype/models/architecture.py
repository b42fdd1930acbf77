"""What a model is made of: the configurations of its parts, without any weights.

Knows the diffusers folder layout and which class each part is; knows nothing of files of weights. Building on
torch's meta device costs no memory, so sizes and names of tensors come from real modules, never from a list.
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

# What is looked up by name elsewhere; anything else may be left to the classes' defaults.
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

    def __post_init__(self) -> None:
        """Configurations come from strangers' files: what they leave out is a ValueError here."""
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
        """The inverse of `as_dict`; values that make no architecture are a ValueError."""
        try:
            lists = {name: tuple(values[name]) for name in ("text_encoders", "tokenizers")}
            return cls(**{**values, **lists})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the description of a model: {error}") from error

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "text_encoders": list(self.text_encoders), "tokenizers": list(self.tokenizers)}

    @property
    def prediction_type(self) -> str:
        """What the UNet was trained to predict: "epsilon" or "v_prediction"."""
        return str(self.scheduler.get("prediction_type", "epsilon"))

    def predicting(self, prediction_type: str | None) -> Architecture:
        """The same with a UNet that predicts something else; None leaves it."""
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
        """Whether the UNet is told a score in the place of a target size: five numbers, as SDXL's refiner."""
        if self.family != "sdxl":
            return False
        summary, number = self.text_encoders[-1]["projection_dim"], self.unet["addition_time_embed_dim"]
        return bool(self.unet["projection_class_embeddings_input_dim"] == summary + 5 * number)

    def widened(self, factor: int) -> Architecture:
        """UNet and text encoders `factor` times as wide, with so many times the attention heads.

        The autoencoder stays what it is, so that latents mean the same at every width.
        """
        if factor == 1:
            return self
        unet, encoders = dict(self.unet), [dict(encoder) for encoder in self.text_encoders]
        if "projection_class_embeddings_input_dim" in unet:
            # The summary of the text grows, the sizes beside it do not.
            unet["projection_class_embeddings_input_dim"] += (factor - 1) * encoders[-1]["projection_dim"]
        for config in (unet, *encoders):
            config |= {key: _times(config[key], factor) for key in _WIDTHS if key in config}
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
            f"text_encoder{end}": e for end, e in zip(self.endings(), self.text_encoders, strict=True)
        }
        return {"unet": self.unet, "vae": self.vae, **encoders}

    def endings(self) -> list[str]:
        """What follows `text_encoder` and `tokenizer` in the folder names of each encoder."""
        # SDXL's refiner has the second encoder alone, and it keeps its name.
        first = 1 if self.family == "sdxl" and len(self.text_encoders) == 1 else 0
        return [nth(first + index) for index in range(len(self.text_encoders))]

    def build(self, part: str) -> nn.Module:
        """The part as its library has it, on the meta device: names and shapes, no memory."""
        return self._made(part, library_module)

    def outline(self, part: str) -> nn.Module:
        """The same names and shapes, without the library where `build_skeleton` has them."""
        return self._made(part, lambda config: build_skeleton(config) or library_module(config))

    def _made(self, part: str, make: Callable[[Mapping[str, Any]], nn.Module]) -> nn.Module:
        config = self.parts()[part]
        try:
            with torch.device("meta"):
                return make(config)
        except Exception as error:  # the classes raise anything at all over settings that do not fit together
            raise ModelFileError(self.name, f"its {part} configuration makes no model: {error}") from error

    def tensor_shapes(self, part: str) -> dict[str, tuple[int, ...]]:
        """Name (as published files have it) → shape of every tensor of the part."""
        if part not in self._shapes:
            tensors = self.outline(part).state_dict()
            self._shapes[part] = {published_name(name, part): tuple(t.shape) for name, t in tensors.items()}
        return self._shapes[part]

    @cached_property
    def _shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        return {}

    def parameter_counts(self) -> dict[str, int]:
        """How many numbers each part has."""
        return {part: sum(p.numel() for p in self.outline(part).parameters()) for part in self.parts()}


def _times(value: int | Sequence[int], factor: int) -> int | list[int]:
    return value * factor if isinstance(value, int) else [number * factor for number in value]


def nth(index: int) -> str:
    """What diffusers appends to a folder's name for the second text encoder or tokenizer, and on."""
    return "" if index == 0 else f"_{index + 1}"


def vae_factor(vae: Mapping[str, Any]) -> int:
    """Pixels per latent pixel along one side, for an autoencoder of this configuration."""
    return int(2 ** (len(vae["block_out_channels"]) - 1))


def _check_settings(part: str, config: Mapping[str, Any]) -> None:
    known = {"unet": (UNET,), "vae": (VAE,)}.get(part, TEXT_ENCODERS)
    kind = str(config.get("_class_name"))
    if kind not in known:
        raise ValueError(f"the {part} is a {kind}, only {' and '.join(known)} can be run")
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
    """Which lineage a model belongs to, told by its text encoders: they are what the lineages differ in."""
    if len(text_encoders) > 1 or text_encoders[0].get("_class_name") == TEXT_ENCODERS[1]:
        return "sdxl"
    # Stable Diffusion 2 took OpenCLIP's encoder, which uses the exact GELU; OpenAI's CLIP uses the quick one.
    return "sd2" if text_encoders[0].get("hidden_act") == "gelu" else "sd1"
