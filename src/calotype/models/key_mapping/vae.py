"""Maps the VAE's module names between the diffusers and the original layout, from its configuration."""

from collections.abc import Mapping
from typing import Any

ENDS = {"conv_in": "conv_in", "conv_norm_out": "norm_out", "conv_out": "conv_out"}
RESNET = {
    "norm1": "norm1",
    "conv1": "conv1",
    "norm2": "norm2",
    "conv2": "conv2",
    "conv_shortcut": "nin_shortcut",
}
ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
# The original has the same values with two more dimensions.
LINEAR_HERE_CONVOLUTION_THERE = ("to_q", "to_k", "to_v", "to_out.0")

# diffusers' names of the attention layers until mid-2023 (its pull request 3387); such files are in use.
OLD_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}


def module_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Diffusers module prefix → original module prefix (without `first_stage_model.`)."""
    names = {"quant_conv": "quant_conv", "post_quant_conv": "post_quant_conv"}
    for side in ("encoder", "decoder"):
        names |= {
            f"{side}.{diffusers_name}": f"{side}.{original_name}"
            for diffusers_name, original_name in ENDS.items()
        }
        names |= _resnet(f"{side}.mid_block.resnets.0", f"{side}.mid.block_1")
        names |= _resnet(f"{side}.mid_block.resnets.1", f"{side}.mid.block_2")
        attention = f"{side}.mid_block.attentions.0"
        names |= {
            f"{attention}.{diffusers_name}": f"{side}.mid.attn_1.{original_name}"
            for diffusers_name, original_name in ATTENTION.items()
        }
    levels, layers = len(config["block_out_channels"]), config["layers_per_block"]
    for level in range(levels):
        down, original_down = f"encoder.down_blocks.{level}", f"encoder.down.{level}"
        for layer in range(layers):
            names |= _resnet(f"{down}.resnets.{layer}", f"{original_down}.block.{layer}")
        names[f"{down}.downsamplers.0.conv"] = f"{original_down}.downsample.conv"
        # The original counts the decoder's levels from the other end.
        up, original_up = f"decoder.up_blocks.{level}", f"decoder.up.{levels - 1 - level}"
        for layer in range(layers + 1):
            names |= _resnet(f"{up}.resnets.{layer}", f"{original_up}.block.{layer}")
        names[f"{up}.upsamplers.0.conv"] = f"{original_up}.upsample.conv"
    return names


def _resnet(diffusers: str, original: str) -> dict[str, str]:
    return {
        f"{diffusers}.{diffusers_name}": f"{original}.{original_name}"
        for diffusers_name, original_name in RESNET.items()
    }


def current_key(name: str) -> str:
    """The current name of a tensor of an old diffusers file."""
    for old, new in OLD_ATTENTION.items():
        name = name.replace(f".attentions.0.{old}.", f".attentions.0.{new}.")
    return name
