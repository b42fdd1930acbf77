"""LoRA files in every dialect, with random numbers, for any layers of a shrunk model.

The names are made by string rules of each trainer, not by our reader's table. Knows nothing of how files are
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.models.architecture import Architecture
from calotype.models.key_mapping import unet as unet_naming
from calotype.models.key_mapping.prefixes import rename_prefixes

RANK = 4
KOHYA_PREFIX = {"unet": "lora_unet_", "text_encoder": "lora_te1_", "text_encoder_2": "lora_te2_"}


@dataclass(frozen=True)
class Update:
    """The two matrices for one layer."""

    part: str
    layer: str
    down: Tensor
    up: Tensor


def layers_of(architecture: Architecture, parts: Iterable[str]) -> list[tuple[str, str]]:
    """Every linear and convolution layer of the parts."""
    found = []
    for part in parts:
        for name, shape in architecture.tensor_shapes(part).items():
            if len(shape) > 1 and not name.startswith("text_model.embeddings"):
                found.append((part, name.removesuffix(".weight")))
    return found


def random_updates(
    architecture: Architecture, layers: Iterable[tuple[str, str]], seed: int, rank: int = RANK
) -> list[Update]:
    """Updates large enough to be seen and small enough to keep a deep network tame."""
    numbers = torch.Generator().manual_seed(seed)
    updates = []
    for part, layer in layers:
        outputs, inputs, *kernel = architecture.tensor_shapes(part)[f"{layer}.weight"]
        down = torch.randn(rank, inputs, *kernel, generator=numbers)
        up = torch.randn(outputs, rank, *[1 for _ in kernel], generator=numbers)
        fan_in = down[0].numel()
        updates.append(Update(part, layer, down / fan_in**0.5, 0.3 * up / rank))
    return updates


def write_kohya(
    path: Path,
    updates: Iterable[Update],
    alpha: float | None,
    *,
    original: Architecture | None = None,
    one_encoder: bool = False,
) -> Path:
    """kohya's sd-scripts; with `original`, UNet layers under the names of the original SDXL code."""
    tensors = {}
    for update in updates:
        layer = update.layer
        if original is not None and update.part == "unet":
            layer = rename_prefixes(layer, unet_naming.module_names(original.unet)) or layer
        prefix = "lora_te_" if one_encoder and update.part == "text_encoder" else KOHYA_PREFIX[update.part]
        key = prefix + layer.replace(".", "_")
        tensors[f"{key}.lora_down.weight"] = update.down
        tensors[f"{key}.lora_up.weight"] = update.up
        if alpha is not None:
            tensors[f"{key}.alpha"] = torch.tensor(alpha)
    save_file(tensors, path)
    return path


TODAY = (".lora_A.weight", ".lora_B.weight")
LATE_2023 = {
    "unet": (".lora.down.weight", ".lora.up.weight"),
    "text_encoder": (".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight"),
    "text_encoder_2": (".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight"),
}


def write_diffusers(path: Path, updates: Iterable[Update], *, late_2023: bool = False) -> Path:
    """Diffusers with peft, or just before it came to it."""
    tensors = {}
    for update in updates:
        down, up = LATE_2023[update.part] if late_2023 else TODAY
        tensors[f"{update.part}.{update.layer}{down}"] = update.down
        tensors[f"{update.part}.{update.layer}{up}"] = update.up
    save_file(tensors, path)
    return path


def write_attention_processors(path: Path, updates: Iterable[Update]) -> Path:
    """Diffusers of early 2023: only attention, as part of an attention processor."""
    tensors = {}
    for update in updates:
        block, _, last = update.layer.removesuffix(".0").rpartition(".")
        if update.part == "unet":
            key = f"unet.{block}.processor.{last}_lora"
        else:
            old = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "out_proj": "to_out"}[last]
            key = f"{update.part}.{block}.{old}_lora"
        tensors[f"{key}.down.weight"] = update.down
        tensors[f"{key}.up.weight"] = update.up
    save_file(tensors, path)
    return path


def write_comfyui(
    path: Path,
    updates: Iterable[Update],
    architecture: Architecture,
    *,
    ending: tuple[str, str] = (".lora_down.weight", ".lora_up.weight"),
) -> Path:
    """ComfyUI's own node: the names of its modules, which in the UNet are the original ones."""
    first = "clip_h" if architecture.family == "sd2" else "clip_l"
    encoders = {"text_encoder": first, "text_encoder_2": "clip_g"}
    tensors = {}
    for update in updates:
        if update.part == "unet":
            original = rename_prefixes(update.layer, unet_naming.module_names(architecture.unet))
            key = f"diffusion_model.{original}"
        else:
            key = f"text_encoders.{encoders[update.part]}.transformer.{update.layer}"
        tensors[f"{key}{ending[0]}"] = update.down
        tensors[f"{key}{ending[1]}"] = update.up
    save_file(tensors, path)
    return path
