"""Builds a model's parts from diffusers' and transformers' classes, whose import takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn


def library_module(config: Mapping[str, Any]) -> nn.Module:
    """Build a part with diffusers or transformers from its configuration."""
    settings = {key: value for key, value in config.items() if not key.startswith("_")}
    module: nn.Module
    match config["_class_name"]:
        case "UNet2DConditionModel":
            from diffusers import UNet2DConditionModel  # noqa: PLC0415 - seconds to import

            module = UNet2DConditionModel.from_config(settings)
        case "AutoencoderKL":
            from diffusers import AutoencoderKL  # noqa: PLC0415 - seconds to import

            module = AutoencoderKL.from_config(settings)
        case "CLIPTextModelWithProjection":
            from transformers import CLIPTextConfig, CLIPTextModelWithProjection  # noqa: PLC0415 - seconds to import

            module = CLIPTextModelWithProjection(CLIPTextConfig(**settings))
        case _:
            from transformers import CLIPTextConfig, CLIPTextModel  # noqa: PLC0415 - seconds to import

            module = CLIPTextModel(CLIPTextConfig(**settings))
    return module
