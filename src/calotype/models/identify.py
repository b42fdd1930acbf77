"""What a weight file is, told by the tensors in it and never by its name.

Knows the marks of each kind; opens nothing and converts nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Shapes = Mapping[str, tuple[int, ...]]

BASE_BY_CONTEXT = {768: "sd1", 1024: "sd2", 2048: "sdxl"}
"""Width of the text embedding a UNet's cross-attention reads."""


class FileKind(StrEnum):
    CHECKPOINT = "checkpoint"
    LORA = "LoRA"
    VAE = "VAE"
    EMBEDDING = "embedding"
    PART = "part of a diffusers folder"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Identity:
    """What a file is, for which base model, and in whose naming."""

    kind: FileKind
    base: str = "unknown"
    dialect: str = "unknown"


def identify(shapes: Shapes) -> Identity:
    """Judge a file by its tensors' names and shapes."""
    for judge in (_checkpoint, _lora, _vae, _embedding, _part):
        identity = judge(shapes)
        if identity is not None:
            return identity
    return Identity(FileKind.UNKNOWN)


def _any(names: Iterable[str], *marks: str) -> bool:
    return any(mark in name for name in names for mark in marks)


def _checkpoint(shapes: Shapes) -> Identity | None:
    if "model.diffusion_model.input_blocks.0.0.weight" not in shapes:
        return None
    base = "unknown"
    for base_name, prefix in (
        ("sdxl", "conditioner.embedders.1.model."),
        ("sdxl-refiner", "conditioner.embedders.0.model."),
        ("sd2", "cond_stage_model.model."),
        ("sd1", "cond_stage_model.transformer."),
    ):
        if any(name.startswith(prefix) for name in shapes):
            base = base_name
            break
    return Identity(FileKind.CHECKPOINT, base if base != "unknown" else _base_by_context(shapes), "original")


def _base_by_context(shapes: Shapes) -> str:
    for name, shape in shapes.items():
        if name.endswith(("attn2.to_k.weight", "attn2_to_k.lora_down.weight", "attn2.to_k.lora_A.weight")):
            return BASE_BY_CONTEXT.get(shape[1], "unknown")
        if name.endswith(("attn2.to_k.lora.down.weight", "attn2.processor.to_k_lora.down.weight")):
            return BASE_BY_CONTEXT.get(shape[1], "unknown")
    return "unknown"


def _lora(shapes: Shapes) -> Identity | None:
    if _any(shapes, ".lora_down.", ".hada_w1", ".lokr_w1", ".dora_scale"):
        dialect = "kohya"
    elif any(name.startswith("base_model.model.") for name in shapes):
        dialect = "peft"
    elif _any(shapes, ".lora_A.", ".lora.down.", "_lora.down.", ".lora_linear_layer.down."):
        dialect = "diffusers"
    else:
        return None
    if _any(shapes, "lora_te2_", "text_encoder_2."):
        return Identity(FileKind.LORA, "sdxl", dialect)
    return Identity(FileKind.LORA, _base_by_context(shapes), dialect)


def _vae(shapes: Shapes) -> Identity | None:
    if "first_stage_model.decoder.conv_in.weight" in shapes or "decoder.mid.block_1.conv1.weight" in shapes:
        return Identity(FileKind.VAE, "any with the same latent", "original")
    if "decoder.mid_block.resnets.0.conv1.weight" in shapes:
        return Identity(FileKind.VAE, "any with the same latent", "diffusers")
    return None


def _embedding(shapes: Shapes) -> Identity | None:
    if "clip_g" in shapes and "clip_l" in shapes:
        return Identity(FileKind.EMBEDDING, "sdxl", "kohya")
    if "emb_params" in shapes:
        return Identity(FileKind.EMBEDDING, _embedding_base(shapes["emb_params"]), "kohya")
    if any(name.startswith("string_to_param.") for name in shapes):
        shape = next(shape for name, shape in shapes.items() if name.startswith("string_to_param."))
        return Identity(FileKind.EMBEDDING, _embedding_base(shape), "automatic1111")
    if len(shapes) == 1:
        shape = next(iter(shapes.values()))
        if len(shape) in (1, 2) and shape[-1] in (768, 1024, 1280):
            return Identity(FileKind.EMBEDDING, _embedding_base(shape), "diffusers")
    return None


def _embedding_base(shape: tuple[int, ...]) -> str:
    return {768: "sd1", 1024: "sd2", 1280: "sdxl"}.get(shape[-1], "unknown")


def _part(shapes: Shapes) -> Identity | None:
    if "down_blocks.0.resnets.0.conv1.weight" in shapes:
        return Identity(FileKind.PART, _base_by_context(shapes), "UNet")
    if _any(shapes, "embeddings.token_embedding.weight"):
        return Identity(FileKind.PART, "unknown", "text encoder")
    return None
