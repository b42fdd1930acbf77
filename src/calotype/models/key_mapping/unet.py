"""Maps the UNet's module names between the diffusers and the original layout, from its configuration."""

from collections.abc import Mapping
from typing import Any

RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}

OUTSIDE_THE_BLOCKS = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}


def module_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Diffusers module prefix → original module prefix (without `model.diffusion_model.`)."""
    names = dict(OUTSIDE_THE_BLOCKS)
    _down(config, names)
    _resnet(names, "mid_block.resnets.0", "middle_block.0")
    names["mid_block.attentions.0"] = "middle_block.1"
    _resnet(names, "mid_block.resnets.1", "middle_block.2")
    _up(config, names)
    return names


def _layers(config: Mapping[str, Any]) -> list[int]:
    """The number of layers of each level of the down path."""
    layers = config["layers_per_block"]
    return [layers] * len(config["down_block_types"]) if isinstance(layers, int) else list(layers)


def _resnet(names: dict[str, str], diffusers: str, original: str) -> None:
    names.update(
        {
            f"{diffusers}.{diffusers_name}": f"{original}.{original_name}"
            for diffusers_name, original_name in RESNET.items()
        }
    )


def _down(config: Mapping[str, Any], names: dict[str, str]) -> None:
    kinds = config["down_block_types"]
    position = 1  # input_blocks.0 is the first convolution
    for level, (kind, layers) in enumerate(zip(kinds, _layers(config), strict=True)):
        for layer in range(layers):
            _resnet(names, f"down_blocks.{level}.resnets.{layer}", f"input_blocks.{position}.0")
            if "CrossAttn" in kind:
                names[f"down_blocks.{level}.attentions.{layer}"] = f"input_blocks.{position}.1"
            position += 1
        if level < len(kinds) - 1:
            names[f"down_blocks.{level}.downsamplers.0.conv"] = f"input_blocks.{position}.0.op"
            position += 1


def _up(config: Mapping[str, Any], names: dict[str, str]) -> None:
    kinds = config["up_block_types"]
    position = 0
    for level, (kind, layers) in enumerate(zip(kinds, reversed(_layers(config)), strict=True)):
        attends = "CrossAttn" in kind
        for layer in range(layers + 1):
            _resnet(names, f"up_blocks.{level}.resnets.{layer}", f"output_blocks.{position}.0")
            if attends:
                names[f"up_blocks.{level}.attentions.{layer}"] = f"output_blocks.{position}.1"
            position += 1
        if level < len(kinds) - 1:
            slot = 2 if attends else 1
            names[f"up_blocks.{level}.upsamplers.0.conv"] = f"output_blocks.{position - 1}.{slot}.conv"
