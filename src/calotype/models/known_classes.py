"""Maps class names in diffusers configuration files to the model family or the kind of part.

The longest key that is a prefix of a class name decides, because pipelines come as
`FluxPipeline`, `FluxImg2ImgPipeline`, `FluxControlPipeline`, and more with every release.
"""

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")

PIPELINES = {
    "StableDiffusion": ("sd", "Stable Diffusion 1 or 2"),
    "StableDiffusionInstructPix2Pix": ("sd1", "InstructPix2Pix (Stable Diffusion 1)"),
    "StableDiffusionUpscale": ("sd2-x4-upscaler", "Stable Diffusion x4 upscaler"),
    "StableDiffusionLatentUpscale": ("sd2-latent-upscaler", "Stable Diffusion latent upscaler"),
    "StableDiffusionDepth2Img": ("sd2", "Stable Diffusion 2 depth"),
    "StableDiffusionImageVariation": ("sd-variations", "Stable Diffusion image variations"),
    "StableDiffusionXL": ("sdxl", "Stable Diffusion XL"),
    "StableDiffusionXLInstructPix2Pix": ("sdxl", "InstructPix2Pix (Stable Diffusion XL)"),
    "StableDiffusion3": ("sd3", "Stable Diffusion 3 or 3.5"),
    "StableUnCLIP": ("sd2-unclip", "Stable Diffusion 2 unCLIP"),
    "UnCLIP": ("unclip", "unCLIP (Karlo)"),
    "StableVideoDiffusion": ("svd", "Stable Video Diffusion"),
    "StableCascade": ("stable-cascade", "Stable Cascade"),
    "LatentConsistencyModel": ("sd1", "latent consistency model"),
    "AnimateDiff": ("sd1", "AnimateDiff"),
    "Flux": ("flux1", "FLUX.1"),
    "FluxFill": ("flux1-fill", "FLUX.1 Fill"),
    "Flux2": ("flux2", "FLUX.2"),
    "QwenImage": ("qwen-image", "Qwen-Image"),
    "PixArtAlpha": ("pixart-alpha", "PixArt-α"),
    "PixArtSigma": ("pixart-sigma", "PixArt-Σ"),
    "HunyuanDiT": ("hunyuan-dit", "HunyuanDiT"),
    "HunyuanVideo": ("hunyuan-video", "HunyuanVideo"),
    "Wan": ("wan", "Wan (video)"),
    "LTX": ("ltx-video", "LTX-Video"),
    "LTX2": ("ltx2", "LTX-2 (video)"),
    "Mochi": ("mochi", "Mochi (video)"),
    "AuraFlow": ("auraflow", "AuraFlow"),
    "Lumina2": ("lumina2", "Lumina 2"),
    "Lumina": ("lumina", "Lumina-Next"),
    "ZImage": ("z-image", "Z-Image"),
    "HiDreamImage": ("hidream", "HiDream"),
    "Kandinsky": ("kandinsky2", "Kandinsky 2"),
    "Kandinsky3": ("kandinsky3", "Kandinsky 3"),
    "Kandinsky5": ("kandinsky5", "Kandinsky 5"),
    "Sana": ("sana", "Sana"),
    "Chroma": ("chroma", "Chroma"),
    "CogVideoX": ("cogvideox", "CogVideoX (video)"),
    "CogView": ("cogview", "CogView"),
    "Cosmos": ("cosmos", "Cosmos (video)"),
    "IF": ("deepfloyd-if", "DeepFloyd IF"),
    "Wuerstchen": ("wuerstchen", "Würstchen"),
}
"""Prefix of a pipeline's class name → base and title."""

PARTS = {
    "ControlNetModel": ("ControlNet", "ControlNet for Stable Diffusion"),
    "ControlNetUnionModel": ("ControlNet", "union ControlNet for Stable Diffusion XL"),
    "SD3ControlNetModel": ("ControlNet", "ControlNet for Stable Diffusion 3"),
    "FluxControlNetModel": ("ControlNet", "ControlNet for FLUX.1"),
    "QwenImageControlNetModel": ("ControlNet", "ControlNet for Qwen-Image"),
    "HunyuanDiT2DControlNetModel": ("ControlNet", "ControlNet for HunyuanDiT"),
    "SparseControlNetModel": ("ControlNet", "SparseCtrl for AnimateDiff"),
    "T2IAdapter": ("T2I-Adapter", "T2I-Adapter for Stable Diffusion"),
    "MotionAdapter": ("motion module", "AnimateDiff motion module"),
    "AutoencoderKL": ("VAE", "VAE"),
    "AutoencoderTiny": ("VAE", "TAESD"),
    "AutoencoderDC": ("VAE", "VAE of Sana (DC-AE)"),
    "CLIPTextModel": ("text encoder", "CLIP text encoder"),
    "T5EncoderModel": ("text encoder", "T5 text encoder"),
    "CLIPVisionModel": ("image encoder", "CLIP image encoder"),
}
"""Prefix of the class name of a folder that holds one part → kind and title."""


def named_by_class(name: str, table: Mapping[str, Entry]) -> Entry | None:
    """The entry whose key is the longest prefix of `name`."""
    matches = [prefix for prefix in table if name.startswith(prefix)]
    return table[max(matches, key=len)] if matches else None


SCALES = {
    0.18215: ("sd1 or sd2", "VAE of Stable Diffusion 1 or 2"),
    0.13025: ("sdxl", "VAE of Stable Diffusion XL"),
}
"""A VAE's scaling factor → base and title: the configurations differ in nothing else."""
