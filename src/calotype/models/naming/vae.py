"""Original ↔ diffusers module names of the KL autoencoder, derived from its configuration. Knows nothing of tensors."""

from collections.abc import Mapping
from typing import Any

# In the original these are 1×1 convolutions, in diffusers linear layers: same numbers, two more dimensions.
ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
LINEAR_HERE_CONVOLUTION_THERE = ("to_q", "to_k", "to_v", "to_out.0")

# What diffusers called the attention layers before version 0.14; folders from then are still about.
OLD_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}


def module_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Diffusers module prefix → original module prefix (without `first_stage_model.`)."""
    names = {"quant_conv": "quant_conv", "post_quant_conv": "post_quant_conv"}
    levels = len(config["block_out_channels"])
    for side in ("encoder", "decoder"):
        for end, original in (("conv_in", "conv_in"), ("conv_norm_out", "norm_out"), ("conv_out", "conv_out")):
            names[f"{side}.{end}"] = f"{side}.{original}"
        _resnet(names, f"{side}.mid_block.resnets.0", f"{side}.mid.block_1")
        _resnet(names, f"{side}.mid_block.resnets.1", f"{side}.mid.block_2")
        for ours, theirs in ATTENTION.items():
            names[f"{side}.mid_block.attentions.0.{ours}"] = f"{side}.mid.attn_1.{theirs}"
    for level in range(levels):
        for layer in range(config["layers_per_block"]):
            _resnet(names, f"encoder.down_blocks.{level}.resnets.{layer}", f"encoder.down.{level}.block.{layer}")
        names[f"encoder.down_blocks.{level}.downsamplers.0.conv"] = f"encoder.down.{level}.downsample.conv"
        mirrored = levels - 1 - level  # the original counts the decoder's levels from the far end
        for layer in range(config["layers_per_block"] + 1):
            _resnet(names, f"decoder.up_blocks.{level}.resnets.{layer}", f"decoder.up.{mirrored}.block.{layer}")
        names[f"decoder.up_blocks.{level}.upsamplers.0.conv"] = f"decoder.up.{mirrored}.upsample.conv"
    return names


def _resnet(names: dict[str, str], diffusers: str, original: str) -> None:
    for same in ("norm1", "conv1", "norm2", "conv2"):
        names[f"{diffusers}.{same}"] = f"{original}.{same}"
    names[f"{diffusers}.conv_shortcut"] = f"{original}.nin_shortcut"
