"""Loads a ControlNet (Zhang et al. 2023, arXiv:2302.05543) from a file or a diffusers folder.

The result is diffusers' module. A single file does not state its architecture, which follows from its UNet's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calotype.core.errors import ModelFileError
from calotype.models.files.open import open_tensors
from calotype.models.files.sharded import open_weights, present_stem
from calotype.models.json_file import read_json
from calotype.models.key_mapping import unet as unet_names
from calotype.models.key_mapping.prefixes import rename_prefixes
from calotype.models.skeleton.fallback import library_class

CONFIG = "config.json"
ORIGINAL_MARK = "input_hint_block.0.weight"
ORIGINAL_PREFIX = "control_model."
"""Prefix of every name in files saved from a whole training run."""
STEMS = ("diffusion_pytorch_model", "diffusion_pytorch_model.fp16")
LAST_OF_HINT = "controlnet_cond_embedding.conv_out"


def read_control_net(path: Path, unet: Any, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Load the ControlNet in `path` for this UNet; a file has diffusers' or the original naming."""
    from diffusers import ControlNetModel  # noqa: PLC0415 - seconds to import, only where a ControlNet is used

    with torch.device("meta"):
        if path.is_dir():
            settings = read_json(path / CONFIG, inside=path)
            module = ControlNetModel.from_config(settings)
        else:
            module = ControlNetModel.from_unet(library_class(unet), load_weights_from_unet=False)
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    state = _state(path, module.config, expected)
    wrong = [name for name, shape in expected.items() if tuple(state[name].shape) != shape]
    if wrong:
        actual = list(state[wrong[0]].shape)
        rule = f"{wrong[0]!r} is {actual}, expected {list(expected[wrong[0]])}"
        raise ModelFileError(path, f"{rule}: the ControlNet is for another base model")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in state.values()):
        raise ModelFileError(path, "holds NaN or infinity")
    module.load_state_dict({name: t.to(device, dtype) for name, t in state.items()}, strict=True, assign=True)
    return module.requires_grad_(False).eval()


def _state(path: Path, config: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Tensor]:
    with ExitStack() as opened:
        if path.is_dir():
            file: Any = opened.enter_context(open_weights(path, present_stem(path, STEMS)))
        else:
            file = opened.enter_context(open_tensors(path))
        names = set(file.keys())
        prefix = ORIGINAL_PREFIX if f"{ORIGINAL_PREFIX}{ORIGINAL_MARK}" in names else ""
        table = original_names(config) if f"{prefix}{ORIGINAL_MARK}" in names else None
        wanted = {
            name: prefix + (rename_prefixes(name, table) or name) if table else name for name in expected
        }
        missing = [stored for stored in wanted.values() if stored not in names]
        if missing:
            rule = f"lacks {len(missing)} tensors of a ControlNet for this model, the first is {missing[0]!r}"
            raise ModelFileError(path, rule)
        return {name: file.read(stored) for name, stored in wanted.items()}


def original_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Diffusers module prefix → original prefix. The modules shared with a UNet have the UNet's names."""
    # A ControlNet has no up blocks; the UNet's table requires some, and their rows are never used.
    names = unet_names.module_names({**config, "up_block_types": config["down_block_types"]})
    hint = "controlnet_cond_embedding"
    # One convolution, then two for each width but the last, with an activation after each.
    blocks = 2 * (len(config["conditioning_embedding_out_channels"]) - 1)
    names[f"{hint}.conv_in"] = "input_hint_block.0"
    names |= {f"{hint}.blocks.{block}": f"input_hint_block.{2 + 2 * block}" for block in range(blocks)}
    names[LAST_OF_HINT] = f"input_hint_block.{2 + 2 * blocks}"
    outputs = 1 + sum(
        _layers(config, level) + (level < len(config["down_block_types"]) - 1)
        for level in range(len(config["down_block_types"]))
    )
    names |= {f"controlnet_down_blocks.{index}": f"zero_convs.{index}.0" for index in range(outputs)}
    names["controlnet_mid_block"] = "middle_block_out.0"
    return names


def _layers(config: Mapping[str, Any], level: int) -> int:
    layers = config["layers_per_block"]
    return int(layers if isinstance(layers, int) else layers[level])
