"""Every family that people download is named by `models inspect`, whether it can be run or not.

Headers only: the names are those of published files, the shapes are theirs where a shape tells.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from safetensors.torch import save_file

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.file_detection import FileKind, identify
from calotype.models.inspect import inspect
from calotype.models.key_mapping.ldm import key_mappings
from calotype.models.resolve import resolve_model

NETWORK = "model.diffusion_model."
FIRST = f"{NETWORK}input_blocks.0.0.weight"
CONTEXT = f"{NETWORK}input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight"
XL_CONTEXT = f"{NETWORK}input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight"
MMDIT = {"joint_blocks.0.context_block.attn.qkv.weight": (4608, 1536)}
FLUX = {"double_blocks.0.img_attn.qkv.weight": (9216, 3072), "img_in.weight": (3072, 64)}
GUIDED = {"guidance_in.in_layer.weight": (3072, 256)}
BESIDE = {"first_stage_model.decoder.conv_in.weight": (512, 16, 3, 3), "text_encoders.clip_l.logit_scale": ()}
CHECKPOINT, ALONE, PART = FileKind.CHECKPOINT, FileKind.DIFFUSION_MODEL, FileKind.PART
LORA, CONTROL, VAE, TEXT = FileKind.LORA, FileKind.CONTROL_NET, FileKind.VAE, FileKind.TEXT_ENCODER

Shapes = Mapping[str, tuple[int, ...]]


def _sd(context: int, channels: int = 4, **more: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    others = {f"{NETWORK}{name}": shape for name, shape in more.items()}
    return {FIRST: (320, channels, 3, 3), CONTEXT: (320, context), **others}


def _xl(channels: int, *layers: str) -> dict[str, tuple[int, ...]]:
    first = {FIRST: (320, channels, 3, 3), XL_CONTEXT: (640, 2048)}
    return {**first, **{f"{NETWORK}{layer}.attn1.to_q.weight": (640, 640) for layer in layers}}


def _inside(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """As one file with text encoders and VAE."""
    return {**{f"{NETWORK}{name}": shape for name, shape in shapes.items()}, **BESIDE}


def _lora(layer: str, width: int, down: str = "lora_A") -> dict[str, tuple[int, ...]]:
    return {f"{layer}.{down}.weight": (16, width)}


DEEP, DEEPER = "input_blocks.4.1.transformer_blocks.1", "input_blocks.7.1.transformer_blocks.4"
CLIP = "text_model.encoder.layers.0.mlp.fc1.weight"
T5 = "encoder.block.0.layer.0.SelfAttention.k.weight"
FILES: list[tuple[FileKind, str, Shapes]] = [
    (CHECKPOINT, "Stable Diffusion 1", _sd(768)),
    (CHECKPOINT, "Stable Diffusion 1 inpainting", _sd(768, 9)),
    (CHECKPOINT, "InstructPix2Pix (Stable Diffusion 1)", _sd(768, 8)),
    (CHECKPOINT, "Stable Diffusion 2", _sd(1024)),
    # As diffusers' script writes it with transformers 5: the keys of Stable Diffusion 1's text encoder.
    (
        CHECKPOINT,
        "Stable Diffusion 2",
        {**_sd(1024), "cond_stage_model.transformer.encoder.layers.0.mlp.fc1.weight": (4096, 1024)},
    ),
    (CHECKPOINT, "Stable Diffusion 2 inpainting", _sd(1024, 9)),
    (CHECKPOINT, "Stable Diffusion 2 depth", _sd(1024, 5)),
    (CHECKPOINT, "Stable Diffusion x4 upscaler", _sd(1024, 7, **{"label_emb.weight": (1000, 1024)})),
    (CHECKPOINT, "Stable Diffusion 2 unCLIP", _sd(1024, 4, **{"label_emb.0.0.weight": (1280, 2048)})),
    (
        CHECKPOINT,
        "Stable Video Diffusion",
        _sd(1024, 8, **{"input_blocks.1.1.time_stack.0.attn1.to_q.weight": (320, 320)}),
    ),
    (CHECKPOINT, "Stable Diffusion XL", _xl(4, DEEP, DEEPER)),
    (CHECKPOINT, "Stable Diffusion XL inpainting", _xl(9, DEEP, DEEPER)),
    (CHECKPOINT, "InstructPix2Pix (Stable Diffusion XL)", _xl(8, DEEP, DEEPER)),
    (CHECKPOINT, "SSD-1B", _xl(4, DEEP, "input_blocks.7.1.transformer_blocks.3")),
    (CHECKPOINT, "Segmind Vega", _xl(4, "input_blocks.7.1.transformer_blocks.1")),
    (CHECKPOINT, "Stable Diffusion 3 medium", _inside({**MMDIT, "pos_embed": (1, 36864, 1536)})),
    (
        CHECKPOINT,
        "Stable Diffusion 3.5 medium",
        _inside({**MMDIT, "joint_blocks.0.x_block.attn2.qkv.weight": (4608, 1536)}),
    ),
    (ALONE, "Stable Diffusion 3.5 large", {**MMDIT, "joint_blocks.37.x_block.mlp.fc1.weight": (9728, 2432)}),
    (CHECKPOINT, "FLUX.1 dev", _inside({**FLUX, **GUIDED})),
    (CHECKPOINT, "FLUX.1 schnell", _inside(FLUX)),
    (ALONE, "FLUX.1 dev", {**FLUX, **GUIDED}),
    (ALONE, "FLUX.1 schnell", FLUX),
    (ALONE, "FLUX.1 Fill", {**FLUX, **GUIDED, "img_in.weight": (3072, 384)}),
    (ALONE, "FLUX.1 Depth or Canny", {**FLUX, **GUIDED, "img_in.weight": (3072, 128)}),
    (ALONE, "FLUX.2", {**FLUX, "single_stream_modulation.lin.weight": (18432, 6144)}),
    (ALONE, "Chroma", {**FLUX, "distilled_guidance_layer.in_proj.weight": (5120, 64)}),
    (
        ALONE,
        "Qwen-Image",
        {"txt_norm.weight": (3584,), "transformer_blocks.0.img_mod.1.weight": (18432, 3072)},
    ),
    (
        ALONE,
        "PixArt-α",
        {
            "t_block.1.weight": (6912, 1152),
            "y_embedder.y_proj.fc1.weight": (1152, 4096),
            "csize_embedder.mlp.0.weight": (384, 256),
        },
    ),
    (ALONE, "PixArt-Σ", {"t_block.1.weight": (6912, 1152), "y_embedder.y_proj.fc1.weight": (1152, 4096)}),
    (
        ALONE,
        "Sana",
        {"t_block.1.weight": (13440, 2240), "blocks.0.mlp.inverted_conv.conv.weight": (11200, 2240, 1, 1)},
    ),
    (ALONE, "HunyuanDiT", {"mlp_t5.0.weight": (8192, 2048), "text_embedding_padding": (333, 1024)}),
    (ALONE, "HunyuanVideo", {**FLUX, "txt_in.individual_token_refiner.blocks.0.norm1.weight": (3072,)}),
    (
        ALONE,
        "Wan 14B (video)",
        {"head.modulation": (1, 2, 5120), "patch_embedding.weight": (5120, 16, 1, 2, 2)},
    ),
    (
        ALONE,
        "Wan 1.3B (video)",
        {"head.modulation": (1, 2, 1536), "patch_embedding.weight": (1536, 16, 1, 2, 2)},
    ),
    (
        CHECKPOINT,
        "LTX-Video",
        {
            f"{NETWORK}patchify_proj.weight": (2048, 128),
            f"{NETWORK}transformer_blocks.0.scale_shift_table": (6, 2048),
            "vae.decoder.conv_in.conv.weight": (512, 128, 3, 3, 3),
        },
    ),
    (ALONE, "Mochi (video)", {"blocks.0.attn.qkv_x.weight": (9216, 3072), "t5_yproj.weight": (1536, 4096)}),
    (ALONE, "AuraFlow", {"model.double_layers.0.attn.w1q.weight": (3072, 3072)}),
    (
        ALONE,
        "Lumina 2",
        {"cap_embedder.1.weight": (2304, 2304), "layers.0.attention.qkv.weight": (3840, 2304)},
    ),
    (ALONE, "Z-Image", {f"{NETWORK}cap_embedder.1.weight": (3840, 2560)}),
    (ALONE, "HiDream", {"double_stream_blocks.0.block.adaLN_modulation.1.bias": (30720,)}),
    (ALONE, "Kandinsky 5", {"visual_embeddings.in_layer.weight": (2048, 64)}),
    (
        ALONE,
        "Stable Cascade, stage C",
        {"clip_txt_mapper.weight": (2048, 1280), "clf.1.weight": (16, 2048, 1, 1)},
    ),
    (ALONE, "Stable Cascade, stage B", {"clip_mapper.weight": (1280, 1280), "clf.1.weight": (16, 320, 1, 1)}),
    (ALONE, "CogVideoX (video)", {f"{NETWORK}mixins.patch_embed.proj.weight": (1920, 16, 2, 2)}),
    (
        PART,
        "Kandinsky 2",
        {"encoder_hid_proj.image_embeds.weight": (24576, 1280), "conv_in.weight": (384, 4, 3, 3)},
    ),
    (PART, "Kandinsky 2 prior", {"prd_embedding": (1, 1, 2048), "clip_mean": (1, 1280)}),
    (
        FileKind.MOTION_MODULE,
        "AnimateDiff motion module, version 2",
        {
            "down_blocks.0.motion_modules.0.temporal_transformer.norm.weight": (320,),
            "down_blocks.3.motion_modules.0.temporal_transformer.norm.weight": (1280,),
            "mid_block.motion_modules.0.temporal_transformer.norm.weight": (1280,),
        },
    ),
    (
        FileKind.MOTION_MODULE,
        "AnimateDiff motion module for Stable Diffusion XL",
        {"down_blocks.0.motion_modules.0.temporal_transformer.norm.weight": (320,)},
    ),
    (
        CONTROL,
        "ControlNet for Stable Diffusion 1",
        {
            "control_model.input_hint_block.0.weight": (16, 3, 3, 3),
            CONTEXT.replace(NETWORK, "control_model."): (320, 768),
        },
    ),
    (
        CONTROL,
        "ControlNet for Stable Diffusion 2",
        {"input_hint_block.0.weight": (16, 3, 3, 3), CONTEXT.removeprefix(NETWORK): (320, 1024)},
    ),
    (CONTROL, "ControlNet for FLUX.1", {"controlnet_blocks.0.weight": (3072, 3072), **FLUX}),
    (
        CONTROL,
        "ControlNet for Stable Diffusion 3.5",
        {
            "controlnet_blocks.0.weight": (2432, 2432),
            "transformer_blocks.0.adaLN_modulation.1.bias": (14592,),
        },
    ),
    (
        CONTROL,
        "Control-LoRA for Stable Diffusion XL",
        {"lora_controlnet": (), "input_blocks.1.0.in_layers.2.down": (128, 320)},
    ),
    (
        FileKind.T2I_ADAPTER,
        "T2I-Adapter for Stable Diffusion 1",
        {"conv_in.weight": (320, 192, 3, 3), "body.0.block1.weight": (320, 320, 3, 3)},
    ),
    (
        FileKind.T2I_ADAPTER,
        "T2I-Adapter for Stable Diffusion XL",
        {
            "adapter.conv_in.weight": (320, 768, 3, 3),
            "adapter.body.0.resnets.0.block1.weight": (320, 320, 3, 3),
        },
    ),
    (
        FileKind.IP_ADAPTER,
        "IP-Adapter for Stable Diffusion 1",
        {"image_proj.proj.weight": (3072, 1024), "ip_adapter.1.to_k_ip.weight": (320, 768)},
    ),
    (
        FileKind.IP_ADAPTER,
        "IP-Adapter for Stable Diffusion XL",
        {"image_proj.proj.weight": (8192, 1280), "ip_adapter.1.to_k_ip.weight": (640, 2048)},
    ),
    (LORA, "LoRA for FLUX.1", _lora("lora_unet_double_blocks_0_img_attn_qkv", 3072, "lora_down")),
    (LORA, "LoRA for FLUX.1", _lora("transformer.single_transformer_blocks.0.attn.to_q", 3072)),
    (LORA, "LoRA for FLUX.1", {"double_blocks.0.processor.proj_lora1.down.weight": (16, 3072)}),
    (LORA, "LoRA for FLUX.2", _lora("diffusion_model.double_blocks.0.img_attn.qkv", 6144)),
    (LORA, "LoRA for Chroma", _lora("diffusion_model.distilled_guidance_layer.layers.0.in_layer", 5120)),
    (LORA, "LoRA for Stable Diffusion 3", _lora("transformer.transformer_blocks.0.attn.add_k_proj", 1536)),
    (
        LORA,
        "LoRA for Stable Diffusion 3",
        _lora("lora_unet_joint_blocks_0_x_block_attn_qkv", 1536, "lora_down"),
    ),
    (LORA, "LoRA for Qwen-Image", _lora("diffusion_model.transformer_blocks.0.img_mlp.net.0.proj", 3072)),
    (LORA, "LoRA for Wan (video)", _lora("diffusion_model.blocks.0.cross_attn.k", 5120)),
    (LORA, "LoRA for HunyuanVideo", _lora("diffusion_model.double_blocks.0.img_attn_qkv", 3072)),
    (LORA, "LoRA for Z-Image", _lora("diffusion_model.layers.0.attention.to_q", 3840)),
    (LORA, "LoRA for Lumina 2", _lora("diffusion_model.layers.0.attention.qkv", 2304)),
    (LORA, "LoRA for LTX-Video", _lora("diffusion_model.transformer_blocks.0.attn1.to_k", 2048)),
    (LORA, "LoRA for HiDream", _lora("diffusion_model.double_stream_blocks.0.block.attn1.to_q", 2560)),
    (
        LORA,
        "AnimateDiff motion LoRA",
        {
            "down_blocks.0.motion_modules.0.processor.to_q_lora.down.weight": (
                32,
                320,
            )
        },
    ),
    (
        VAE,
        "VAE of Stable Diffusion 3 or FLUX.1",
        {"decoder.mid.block_1.conv1.weight": (512, 512, 3, 3), "decoder.conv_in.weight": (512, 16, 3, 3)},
    ),
    (
        VAE,
        "VAE of FLUX.2",
        {"decoder.mid.block_1.conv1.weight": (512, 512, 3, 3), "decoder.conv_in.weight": (512, 32, 3, 3)},
    ),
    (VAE, "VAE of Wan or Qwen-Image", {"decoder.middle.0.residual.0.gamma": (384, 1, 1, 1)}),
    (
        VAE,
        "TAESD decoder for Stable Diffusion 1, 2 or XL",
        {"1.weight": (64, 4, 3, 3), "3.conv.0.weight": (64, 64, 3, 3)},
    ),
    (
        VAE,
        "TAESD decoder for Stable Diffusion 3 or FLUX.1",
        {"1.weight": (64, 16, 3, 3), "3.conv.0.weight": (64, 64, 3, 3)},
    ),
    (TEXT, "CLIP ViT-L text encoder", {CLIP: (3072, 768)}),
    (TEXT, "OpenCLIP ViT-bigG text encoder", {CLIP: (5120, 1280)}),
    (TEXT, "T5-XXL text encoder", {T5: (4096, 4096)}),
    (
        TEXT,
        "UMT5-XXL text encoder",
        {T5: (4096, 4096), "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight": (32, 64)},
    ),
    (
        FileKind.IMAGE_ENCODER,
        "OpenCLIP ViT-H image encoder",
        {"vision_model.embeddings.position_embedding.weight": (257, 1280)},
    ),
    (
        FileKind.UPSCALER,
        "ESRGAN upscaler",
        {"model.0.weight": (64, 3, 3, 3), "model.1.sub.0.RDB1.conv1.0.weight": (32, 64, 3, 3)},
    ),
    (
        FileKind.UPSCALER,
        "Real-ESRGAN upscaler",
        {
            "params_ema.conv_first.weight": (64, 3, 3, 3),
            "params_ema.body.0.rdb1.conv1.weight": (32, 64, 3, 3),
        },
    ),
    (
        FileKind.EMBEDDING,
        "textual inversion for Stable Diffusion XL",
        {"clip_l": (2, 768), "clip_g": (2, 1280)},
    ),
]


@pytest.mark.parametrize(
    ("kind", "title", "shapes"), FILES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_file_is_named(kind: FileKind, title: str, shapes: Shapes) -> None:
    found = identify(shapes)
    assert (found.kind, found.title) == (kind, title)


SMALL_TEXT_IMAGE: dict[str, Any] = {
    "cross_attention_dim": 2048,
    "down_block_types": ("CrossAttnDownBlock2D",),
}
CLASSES: list[tuple[str, str, dict[str, Any]]] = [
    ("SD3Transformer2DModel", "Stable Diffusion 3 medium", {"num_layers": 24}),
    ("SD3Transformer2DModel", "Stable Diffusion 3.5 large", {"num_layers": 38}),
    (
        "SD3Transformer2DModel",
        "Stable Diffusion 3.5 medium",
        {"num_layers": 2, "dual_attention_layers": (0,)},
    ),
    ("FluxTransformer2DModel", "FLUX.1 schnell", {"num_layers": 1, "num_single_layers": 1}),
    (
        "FluxTransformer2DModel",
        "FLUX.1 dev",
        {"num_layers": 1, "num_single_layers": 1, "guidance_embeds": True},
    ),
    ("Flux2Transformer2DModel", "FLUX.2", {"num_layers": 1, "num_single_layers": 1}),
    ("QwenImageTransformer2DModel", "Qwen-Image", {"num_layers": 1}),
    ("PixArtTransformer2DModel", "PixArt-Σ", {"num_layers": 1, "use_additional_conditions": False}),
    ("PixArtTransformer2DModel", "PixArt-α", {"num_layers": 1, "use_additional_conditions": True}),
    ("HunyuanVideoTransformer3DModel", "HunyuanVideo", {"num_layers": 1, "num_single_layers": 1}),
    ("WanTransformer3DModel", "Wan (video)", {"num_layers": 1}),
    ("LTXVideoTransformer3DModel", "LTX-Video", {"num_layers": 1}),
    ("MochiTransformer3DModel", "Mochi (video)", {"num_layers": 2}),
    ("AuraFlowTransformer2DModel", "AuraFlow", {"num_mmdit_layers": 1, "num_single_dit_layers": 1}),
    ("Lumina2Transformer2DModel", "Lumina 2", {"num_layers": 1}),
    ("ZImageTransformer2DModel", "Z-Image", {"n_layers": 1}),
    ("SanaTransformer2DModel", "Sana", {"num_layers": 1}),
    ("ChromaTransformer2DModel", "Chroma", {"num_layers": 1, "num_single_layers": 1}),
    ("CogVideoXTransformer3DModel", "CogVideoX (video)", {"num_layers": 1}),
    ("Kandinsky3UNet", "Kandinsky 3", {}),
    ("UNetSpatioTemporalConditionModel", "Stable Video Diffusion", {}),
    ("MotionAdapter", "AnimateDiff motion module", {}),
    ("ControlNetModel", "ControlNet for Stable Diffusion 1", {"cross_attention_dim": 768}),
    ("ControlNetModel", "ControlNet for Stable Diffusion 2", {"cross_attention_dim": 1024}),
    (
        "ControlNetModel",
        "ControlNet for Stable Diffusion XL",
        {
            "cross_attention_dim": 2048,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816,
        },
    ),
    (
        "ControlNetUnionModel",
        "union ControlNet for Stable Diffusion XL",
        {
            "cross_attention_dim": 2048,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816,
            "num_control_type": 6,
        },
    ),
    ("SD3ControlNetModel", "ControlNet for Stable Diffusion 3", {"num_layers": 1}),
    ("FluxControlNetModel", "ControlNet for FLUX.1", {"num_layers": 1, "num_single_layers": 1}),
    (
        "FluxControlNetModel",
        "union ControlNet for FLUX.1",
        {"num_layers": 1, "num_single_layers": 1, "num_mode": 10},
    ),
    ("T2IAdapter", "T2I-Adapter for Stable Diffusion 1", {}),
    (
        "T2IAdapter",
        "T2I-Adapter for Stable Diffusion XL",
        {"adapter_type": "full_adapter_xl", "downscale_factor": 16},
    ),
    ("AutoencoderKL", "VAE of Stable Diffusion 1, 2 or XL", {}),
    ("AutoencoderKL", "VAE of Stable Diffusion 3 or FLUX.1", {"latent_channels": 16}),
    ("AutoencoderKLFlux2", "VAE of FLUX.2", {}),
    ("AutoencoderKLWan", "VAE of Wan or Qwen-Image", {}),
    ("AutoencoderKLTemporalDecoder", "VAE of Stable Video Diffusion", {}),
    ("AutoencoderDC", "VAE of Sana (DC-AE)", {}),
    ("AutoencoderTiny", "TAESD for Stable Diffusion 1, 2 or XL", {}),
    ("AutoencoderTiny", "TAESD for Stable Diffusion 3 or FLUX.1", {"latent_channels": 16}),
]


@pytest.mark.parametrize(
    ("name", "title", "settings"), CLASSES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_part_of_a_diffusers_folder_is_named(name: str, title: str, settings: dict[str, Any]) -> None:
    """The names are those of the classes themselves, on the meta device."""
    with torch.device("meta"):
        state = getattr(diffusers, name)(**settings).state_dict()
    assert identify({key: tuple(tensor.shape) for key, tensor in state.items()}).title == title


@pytest.mark.parametrize("name", ["sd15", "sd2-base", "sdxl", "sdxl-refiner"])
def test_published_unets_and_checkpoints_are_named(name: str) -> None:
    architecture = catalogue.architecture(name)
    titles = {
        "sd15": "Stable Diffusion 1",
        "sd2-base": "Stable Diffusion 2",
        "sdxl": "Stable Diffusion XL",
        "sdxl-refiner": "Stable Diffusion XL refiner",
    }
    assert identify(architecture.tensor_shapes("unet")).title == titles[name]
    shapes = {part: architecture.tensor_shapes(part) for part in architecture.parts()}
    whole = {row.original: row.original_shape(shapes) for row in key_mappings(architecture)}
    assert identify(whole).title == titles[name]


def test_file_that_cannot_be_run_is_refused_by_its_name(tmp_path: Path) -> None:
    whole = {name: torch.zeros(1) for name in _inside({**FLUX, **GUIDED})}
    save_file(whole, tmp_path / "all-in-one.safetensors")
    with pytest.raises(ModelFileError, match=r"is a checkpoint for FLUX\.1 dev, which is not supported"):
        resolve_model(str(tmp_path / "all-in-one.safetensors"))
    save_file({name: torch.zeros(1) for name in FLUX}, tmp_path / "alone.safetensors")
    with pytest.raises(
        ModelFileError, match=r"diffusion model without text encoders and VAE \(FLUX.1 schnell\)"
    ):
        resolve_model(str(tmp_path / "alone.safetensors"))


def _folder(place: Path, config: str, values: dict[str, Any], weights: str) -> Path:
    (place / weights).parent.mkdir(parents=True, exist_ok=True)
    (place / config).write_text(json.dumps(values))
    save_file({"weight": torch.zeros(1)}, place / weights)
    return place


@pytest.mark.parametrize(
    ("pipeline", "title"),
    [
        ("StableDiffusion3Pipeline", "Stable Diffusion 3 or 3.5"),
        ("FluxPipeline", "FLUX.1"),
        ("FluxFillPipeline", "FLUX.1 Fill"),
        ("Flux2Pipeline", "FLUX.2"),
        ("QwenImageEditPipeline", "Qwen-Image"),
        ("StableVideoDiffusionPipeline", "Stable Video Diffusion"),
        ("KandinskyV22Pipeline", "Kandinsky 2"),
        ("Kandinsky3Pipeline", "Kandinsky 3"),
        ("WanImageToVideoPipeline", "Wan (video)"),
        ("ZImagePipeline", "Z-Image"),
        ("SomethingNewPipeline", "SomethingNewPipeline"),
    ],
)
def test_folder_of_another_family_is_named_by_its_class(pipeline: str, title: str, tmp_path: Path) -> None:
    weights = "transformer/diffusion_pytorch_model.safetensors"
    found = inspect(_folder(tmp_path, "model_index.json", {"_class_name": pipeline}, weights))
    assert (found.title, found.kind, found.safe, found.num_tensors) == (title, "checkpoint", True, 1)
    assert "cannot be run" in found.why


@pytest.mark.parametrize(
    ("config", "kind", "title"),
    [
        ({"_class_name": "ControlNetModel"}, "ControlNet", "ControlNet for Stable Diffusion"),
        ({"_class_name": "MotionAdapter"}, "motion module", "AnimateDiff motion module"),
        ({"architectures": ["CLIPTextModelWithProjection"]}, "text encoder", "CLIP text encoder"),
    ],
)
def test_folder_of_one_part_is_named_by_its_class(
    config: dict[str, Any], kind: str, title: str, tmp_path: Path
) -> None:
    found = inspect(_folder(tmp_path, "config.json", config, "diffusion_pytorch_model.safetensors"))
    assert (found.kind, found.title, found.safe) == (kind, title, True)


def test_vae_folder_is_named_by_its_scale(tmp_path: Path) -> None:
    with torch.device("meta"):
        names = diffusers.AutoencoderKL().state_dict()
    for scale, title in (
        (0.18215, "VAE of Stable Diffusion 1 or 2"),
        (0.13025, "VAE of Stable Diffusion XL"),
    ):
        place = tmp_path / str(scale)
        _folder(
            place,
            "config.json",
            {"_class_name": "AutoencoderKL", "scaling_factor": scale},
            "unused.safetensors",
        )
        save_file({name: torch.zeros(t.shape) for name, t in names.items()}, place / "unused.safetensors")
        assert inspect(place).title == title


def test_weights_of_a_folder_of_another_family_are_checked(tmp_path: Path) -> None:
    weights = "transformer/diffusion_pytorch_model.safetensors"
    folder = _folder(tmp_path, "model_index.json", {"_class_name": "FluxPipeline"}, weights)
    (folder / weights).write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    assert not inspect(folder).safe
