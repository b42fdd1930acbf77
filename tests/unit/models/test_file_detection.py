"""Files are told apart by the tensors in them: every kind, base and dialect, whatever the file is called."""

from pathlib import Path

import pytest
from safetensors.torch import save_file
from torch import zeros

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.file_detection import FileKind, Identity, identify
from calotype.models.key_mapping.ldm import VAE, key_mappings, vae_key_mappings
from calotype.models.resolve import resolve_model

Shapes = dict[str, tuple[int, ...]]


def _checkpoint(name: str, without: str = "nothing") -> Shapes:
    """The names and shapes of a full-size original file."""
    architecture = catalogue.architecture(name)
    shapes = {part: architecture.tensor_shapes(part) for part in architecture.parts()}
    rows = key_mappings(architecture)
    return {r.original: r.original_shape(shapes) for r in rows if not r.original.startswith(without)}


def _vae(prefix: str) -> Shapes:
    architecture = catalogue.architecture("sd15")
    shapes = {"vae": architecture.tensor_shapes("vae")}
    return {r.original: r.original_shape(shapes) for r in vae_key_mappings(architecture, prefix)}


def _pair(down: str, up: str, width: int) -> Shapes:
    return {down: (4, width), up: (320, 4)}


ATTENTION = "down_blocks.0.attentions.0.transformer_blocks.0.attn2"
FLAT = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k"
FLAT_ORIGINAL = "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_k"
COMFYUI = "diffusion_model.input_blocks.1.1.transformer_blocks.0"
COMFYUI_TEXT = "text_encoders.clip_{}.transformer.text_model.encoder.layers.0.self_attn.q_proj"
FLAT_TEXT = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
ANY = "sd1, sd2 or sdxl"


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (_checkpoint("sd15"), Identity(FileKind.CHECKPOINT, "sd1", "original")),
        (_checkpoint("sd2-base"), Identity(FileKind.CHECKPOINT, "sd2", "original")),
        (_checkpoint("sdxl"), Identity(FileKind.CHECKPOINT, "sdxl", "original")),
        (_checkpoint("sdxl-refiner"), Identity(FileKind.CHECKPOINT, "sdxl-refiner", "original")),
        # Without any text encoder, the width that cross-attention reads tells.
        (_checkpoint("sd15", without="cond_stage"), Identity(FileKind.CHECKPOINT, "sd1", "original")),
        (_checkpoint("sd2-base", without="cond_stage"), Identity(FileKind.CHECKPOINT, "sd2", "original")),
        (_checkpoint("sdxl", without="conditioner"), Identity(FileKind.CHECKPOINT, "sdxl", "original")),
        (
            _pair(f"{FLAT}.lora_down.weight", f"{FLAT}.lora_up.weight", 768) | {f"{FLAT}.alpha": ()},
            Identity(FileKind.LORA, "sd1", "kohya"),
        ),
        (
            _pair(f"{FLAT}.lora_down.weight", f"{FLAT}.lora_up.weight", 1024),
            Identity(FileKind.LORA, "sd2", "kohya"),
        ),
        (
            _pair(f"{FLAT_ORIGINAL}.lora_down.weight", f"{FLAT_ORIGINAL}.lora_up.weight", 640),
            Identity(FileKind.LORA, "sdxl", "kohya"),
        ),
        (
            _pair(f"{FLAT_TEXT}.lora_down.weight", f"{FLAT_TEXT}.lora_up.weight", 1024),
            Identity(FileKind.LORA, "sd2", "kohya"),
        ),
        ({"lora_te1_x.lora_down.weight": (4, 768)}, Identity(FileKind.LORA, "sdxl", "kohya")),
        (
            _pair(f"{COMFYUI}.attn2.to_k.lora_down.weight", f"{COMFYUI}.attn2.to_k.lora_up.weight", 768),
            Identity(FileKind.LORA, "sd1", "comfyui"),
        ),
        (
            {f"{COMFYUI_TEXT.format('h')}.lora_A.weight": (4, 1024)},
            Identity(FileKind.LORA, "sd2", "comfyui"),
        ),
        (
            {f"{COMFYUI_TEXT.format('g')}.lora_down.weight": (4, 1280)},
            Identity(FileKind.LORA, "sdxl", "comfyui"),
        ),
        ({f"{FLAT}.hada_w1_a": (4, 768)}, Identity(FileKind.LORA, "unknown", "kohya")),
        (
            _pair(f"unet.{ATTENTION}.to_k.lora_A.weight", f"unet.{ATTENTION}.to_k.lora_B.weight", 768),
            Identity(FileKind.LORA, "sd1", "diffusers"),
        ),
        (
            _pair(f"unet.{ATTENTION}.to_k.lora.down.weight", f"unet.{ATTENTION}.to_k.lora.up.weight", 2048),
            Identity(FileKind.LORA, "sdxl", "diffusers"),
        ),
        (
            _pair(
                f"{ATTENTION}.processor.to_k_lora.down.weight",
                f"{ATTENTION}.processor.to_k_lora.up.weight",
                1024,
            ),
            Identity(FileKind.LORA, "sd2", "diffusers"),
        ),
        (
            _pair(
                f"base_model.model.{ATTENTION}.to_k.lora_A.weight",
                f"base_model.model.{ATTENTION}.to_k.lora_B.weight",
                2048,
            ),
            Identity(FileKind.LORA, "sdxl", "peft"),
        ),
        (
            {f"base_model.model.{ATTENTION}.to_k.lora_A.default.weight": (4, 768)},
            Identity(FileKind.LORA, "sd1", "peft"),
        ),
        (_vae(VAE), Identity(FileKind.VAE, ANY, "original")),
        (_vae(""), Identity(FileKind.VAE, ANY, "original")),
        (catalogue.architecture("sd15").tensor_shapes("vae"), Identity(FileKind.VAE, ANY, "diffusers")),
        ({"clip_l": (2, 768), "clip_g": (2, 1280)}, Identity(FileKind.EMBEDDING, "sdxl", "kohya")),
        ({"emb_params": (3, 768)}, Identity(FileKind.EMBEDDING, "sd1", "kohya")),
        ({"string_to_param.*": (3, 1024)}, Identity(FileKind.EMBEDDING, "sd2", "automatic1111")),
        ({"<cat-toy>": (768,)}, Identity(FileKind.EMBEDDING, "sd1", "diffusers")),
        ({"<cat-toy>": (8, 1024)}, Identity(FileKind.EMBEDDING, "sd2", "diffusers")),
        (catalogue.architecture("sd15").tensor_shapes("unet"), Identity(FileKind.PART, "sd1", "UNet")),
        (
            catalogue.architecture("sd15").tensor_shapes("text_encoder"),
            Identity(FileKind.TEXT_ENCODER, "sd1", "transformers"),
        ),
        ({"model.layers.0.self_attn.q_proj.weight": (4096, 4096)}, Identity(FileKind.UNKNOWN)),
        ({"weight": (10, 10)}, Identity(FileKind.UNKNOWN)),
        ({"weight": ()}, Identity(FileKind.UNKNOWN)),
        ({}, Identity(FileKind.UNKNOWN)),
    ],
    ids=lambda value: f"{value.kind}-{value.base}-{value.dialect}" if isinstance(value, Identity) else "",
)
def test_kind_base_and_dialect(shapes: Shapes, expected: Identity) -> None:
    assert identify(shapes) == expected


@pytest.mark.parametrize("name", ["sdxl.safetensors", "checkpoint.ckpt", "v1-5-pruned-emaonly.safetensors"])
def test_a_name_makes_no_checkpoint(name: str, tmp_path: Path) -> None:
    save_file({"emb_params": zeros(2, 768)}, tmp_path / name)
    with pytest.raises(ModelFileError, match=f"{name}: is not a checkpoint but: embedding"):
        resolve_model(str(tmp_path / name))
