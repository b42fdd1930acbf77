"""Implements the loader nodes: they return references; files are read when a node uses them."""

from __future__ import annotations

from pathlib import Path

from calotype.workflow.node_api import Context
from calotype.workflow.nodes.value_types import ClipValue, ControlNetValue, ModelValue, VaeValue

PART_OF_A_FOLDER = "diffusion_pytorch_model"
"""The stem of diffusers' weight files in a part's folder."""


def checkpoint(context: Context, ckpt_name: str) -> tuple[ModelValue, ClipValue, VaeValue]:
    reference = str(context.catalogue.find("checkpoints", ckpt_name))
    return ModelValue(reference), ClipValue(reference), VaeValue(reference)


def vae(context: Context, vae_name: str) -> tuple[VaeValue]:
    return (VaeValue(_resolve_path(context, "vae", vae_name), alone=True),)


def control_net(context: Context, control_net_name: str) -> tuple[ControlNetValue]:
    return (ControlNetValue(_resolve_path(context, "controlnet", control_net_name)),)


def lora(
    context: Context,
    model: ModelValue,
    clip: ClipValue,
    lora_name: str,
    strength_model: float,
    strength_clip: float,
) -> tuple[ModelValue, ClipValue]:
    context.catalogue.find("loras", lora_name)
    changed = model.with_lora(lora_name, strength_model) if strength_model else model
    return changed, clip.with_lora(lora_name, strength_clip) if strength_clip else clip


def lora_model_only(
    context: Context, model: ModelValue, lora_name: str, strength_model: float
) -> tuple[ModelValue]:
    context.catalogue.find("loras", lora_name)
    return (model.with_lora(lora_name, strength_model) if strength_model else model,)


def last_layer(_context: Context, clip: ClipValue, stop_at_clip_layer: int) -> tuple[ClipValue]:
    return (clip.stopping_at(stop_at_clip_layer),)


def _resolve_path(context: Context, folder: str, name: str) -> str:
    path = Path(context.catalogue.find(folder, name))
    in_folder = path.name.startswith(PART_OF_A_FOLDER) and (path.parent / "config.json").is_file()
    return str(path.parent if in_folder else path)
