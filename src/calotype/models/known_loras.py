"""Lists the patterns that identify each family's LoRA files, one row per naming scheme."""

from typing import NamedTuple


class LoraFamily(NamedTuple):
    """One row: a pattern that some tensor name matches, and the layer's width where that decides."""

    base: str
    title: str
    pattern: str
    widths: tuple[int, ...] = ()


# Names are dotted or flattened with underscores, so a pattern accepts both. LoRAs for Stable Diffusion differ
# in the width of the text embedding, as checkpoints do.
_ATTENTION_1 = r"transformer_blocks[._]\d+[._]attn1"
_ADDED = r"transformer_blocks[._]\d+[._]attn[._]add_[qkv]_proj"
_LAYER = r"layers[._]\d+[._]attention[._](to_[qkv]|qkv)"
LORAS = (
    LoraFamily("sd1", "AnimateDiff motion LoRA", r"motion_modules|temporal_transformer"),
    LoraFamily("stable-cascade-c", "LoRA for Stable Cascade", r"^lora_prior_unet_"),
    LoraFamily("chroma", "LoRA for Chroma", r"distilled_guidance_layer"),
    LoraFamily("sd3", "LoRA for Stable Diffusion 3", r"joint_blocks[._]\d+"),
    LoraFamily("auraflow", "LoRA for AuraFlow", r"joint_transformer_blocks|double_layers[._]\d+"),
    LoraFamily("hidream", "LoRA for HiDream", r"double_stream_blocks"),
    LoraFamily("flux2", "LoRA for FLUX.2", r"(double|single)_(transformer_)?blocks[._]\d+[._]", (6144,)),
    LoraFamily("hunyuan-video", "LoRA for HunyuanVideo", r"double_blocks\.\d+\.(img|txt)_attn_qkv"),
    LoraFamily(
        "hunyuan-video",
        "LoRA for HunyuanVideo",
        r"double_blocks[._]19[._]|single_(transformer_)?blocks[._]3[89]",
    ),
    LoraFamily(
        "flux1", "LoRA for FLUX.1", r"double_blocks[._]\d+|single_blocks[._]\d+|single_transformer_blocks"
    ),
    LoraFamily("qwen-image", "LoRA for Qwen-Image", r"transformer_blocks[._]\d+[._](img|txt)_(mlp|mod)"),
    LoraFamily("qwen-image", "LoRA for Qwen-Image", r"transformer_blocks[._](3[89]|[45]\d)[._]attn[._]"),
    LoraFamily("sd3", "LoRA for Stable Diffusion 3", r"transformer_blocks[._]\d+[._]attn[._]", (1536, 2432)),
    LoraFamily("flux1", "LoRA for FLUX.1", _ADDED, (3072,)),
    LoraFamily("wan", "LoRA for Wan (video)", r"(^|[._])blocks[._]\d+[._](cross_attn|self_attn)[._][qkvo]"),
    LoraFamily("wan", "LoRA for Wan (video)", r"(^|transformer\.)blocks\.\d+\.attn[12]\.to_[qkv]"),
    LoraFamily("z-image", "LoRA for Z-Image", _LAYER, (3840,)),
    LoraFamily("lumina2", "LoRA for Lumina 2", _LAYER, (2304,)),
    LoraFamily("pixart", "LoRA for PixArt", rf"(^|transformer[._]|model\.){_ATTENTION_1}", (1152,)),
    LoraFamily("sana", "LoRA for Sana", rf"(^|transformer[._]|model\.){_ATTENTION_1}", (2240,)),
    LoraFamily("ltx-video", "LoRA for LTX-Video", rf"(^|transformer\.|model\.){_ATTENTION_1}", (2048, 4096)),
    LoraFamily("cogvideox", "LoRA for CogVideoX", rf"(^|transformer\.){_ATTENTION_1}", (1920, 3072)),
)
