"""What a weight file is, told by the tensors in it and never by its name.

Knows the marks of each kind; opens nothing and converts nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Shapes = Mapping[str, tuple[int, ...]]

BASE_BY_CONTEXT = {768: "sd1", 1024: "sd2", 1280: "sdxl-refiner", 2048: "sdxl"}
"""Width of the text embedding a UNet's cross-attention reads."""
BASE_BY_TEXT_WIDTH = {768: "sd1", 1024: "sd2", 1280: "sdxl"}
"""Width of a text encoder."""

CHECKPOINT_MARK = "model.diffusion_model.input_blocks.0.0.weight"
TEXT_ENCODER_MARKS = {
    "conditioner.embedders.1.model.": "sdxl",
    "conditioner.embedders.0.model.": "sdxl-refiner",
    "cond_stage_model.model.": "sd2",
    "cond_stage_model.transformer.": "sd1",
}

# A weight that reads the text: the model's own, or the half of a LoRA's update that does.
_DOWN = r"(\.lora_down|\.lora_A(\.[^.]+)?|[._]lora\.down|\.lora_linear_layer\.down)"
_READS_CONTEXT = re.compile(rf"attn2[._](processor\.)?to_k({_DOWN})?\.weight$")
_READS_TEXT = re.compile(
    rf"(lora_te_\w*self_attn_|text_encoder\..*|text_encoders\.clip_[lh]\..*)q_proj{_DOWN}\.weight$"
)
_SDXL_LORA = re.compile(
    r"lora_te[12]_|text_encoder_2\.|text_encoders\.clip_g\."
    r"|lora_unet_(input_blocks|middle_block|output_blocks)_"
)
_COMFYUI_LORA = re.compile(rf"(diffusion_model|text_encoders)\..*{_DOWN}\.")


class FileKind(StrEnum):
    """What a file can be."""

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


def _any_starts(names: Iterable[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names)


def _checkpoint(shapes: Shapes) -> Identity | None:
    if CHECKPOINT_MARK not in shapes:
        return None
    told = (base for prefix, base in TEXT_ENCODER_MARKS.items() if _any_starts(shapes, prefix))
    return Identity(FileKind.CHECKPOINT, next(told, None) or _base_by_context(shapes), "original")


def _base_by_context(shapes: Shapes) -> str:
    for name, shape in shapes.items():
        if _READS_CONTEXT.search(name) and len(shape) > 1:
            return BASE_BY_CONTEXT.get(shape[1], "unknown")
    return "unknown"


def _lora(shapes: Shapes) -> Identity | None:
    if any(_COMFYUI_LORA.match(name) for name in shapes):
        dialect = "comfyui"
    elif _any(shapes, ".lora_down.", ".hada_w1", ".lokr_w1", ".dora_scale"):
        dialect = "kohya"
    elif _any_starts(shapes, "base_model.model."):
        dialect = "peft"
    elif _any(shapes, ".lora_A.", ".lora.down.", "_lora.down.", ".lora_linear_layer.down."):
        dialect = "diffusers"
    else:
        return None
    return Identity(FileKind.LORA, _lora_base(shapes), dialect)


def _lora_base(shapes: Shapes) -> str:
    if any(_SDXL_LORA.match(name) for name in shapes):
        return "sdxl"
    base = _base_by_context(shapes)
    if base != "unknown":
        return base
    widths = (shape[1] for name, shape in shapes.items() if _READS_TEXT.search(name) and len(shape) > 1)
    return BASE_BY_TEXT_WIDTH.get(next(widths, 0), "unknown")


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
    learned = [shape for name, shape in shapes.items() if name.startswith("string_to_param.")]
    if learned:
        return Identity(FileKind.EMBEDDING, _embedding_base(learned[0]), "automatic1111")
    if len(shapes) == 1:
        (shape,) = shapes.values()
        if len(shape) in (1, 2) and shape[-1] in BASE_BY_TEXT_WIDTH:
            return Identity(FileKind.EMBEDDING, _embedding_base(shape), "diffusers")
    return None


def _embedding_base(shape: tuple[int, ...]) -> str:
    return BASE_BY_TEXT_WIDTH.get(shape[-1], "unknown") if shape else "unknown"


def _part(shapes: Shapes) -> Identity | None:
    if "down_blocks.0.resnets.0.conv1.weight" in shapes:
        return Identity(FileKind.PART, _base_by_context(shapes), "UNet")
    for name, shape in shapes.items():
        if name.endswith("embeddings.token_embedding.weight"):
            return Identity(FileKind.PART, _embedding_base(shape), "text encoder")
    return None
