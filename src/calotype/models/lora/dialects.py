"""The dialects LoRA files are written in, each brought to (part, module) → update.

kohya flattens module names with underscores (and writes SDXL in the original names); diffusers and peft keep the
dots. Which module a name means is looked up in the architecture, never guessed from the underscores. Knows nothing of
strengths or of live models.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.files.converted import open_tensors
from calotype.models.files.tensor_file import TensorFile
from calotype.models.identify import BASE_BY_CONTEXT
from calotype.models.lora.adapter import Adapter, LayerUpdate
from calotype.models.naming import unet as unet_naming

Target = tuple[str, str]

# What each dialect calls the pieces of one layer's update. The longest endings come first.
PIECES = (
    (".lora_linear_layer.down.weight", "down"),
    (".lora_linear_layer.up.weight", "up"),
    (".lora_down.weight", "down"),
    (".lora_up.weight", "up"),
    (".lora_mid.weight", "middle"),
    (".lora.down.weight", "down"),
    (".lora.up.weight", "up"),
    ("_lora.down.weight", "down"),
    ("_lora.up.weight", "up"),
    (".lora_A.weight", "down"),
    (".lora_B.weight", "up"),
    (".alpha", "alpha"),
)
OTHER_METHODS = {"hada_w": "LoHa", "lokr_w": "LoKr", "dora_scale": "DoRA", ".diff": "full difference", "oft_": "OFT"}
KOHYA_PARTS = {
    "lora_unet_": "unet",
    "lora_te1_": "text_encoder",
    "lora_te2_": "text_encoder_2",
    "lora_te_": "text_encoder",
}
OLD_DIFFUSERS = (
    (".processor.", "."),
    (".self_attn.to_q", ".self_attn.q_proj"),
    (".self_attn.to_k", ".self_attn.k_proj"),
    (".self_attn.to_v", ".self_attn.v_proj"),
    (".self_attn.to_out", ".self_attn.out_proj"),
)


def read_adapter(path: Path, architecture: Architecture) -> Adapter:
    """Read a LoRA file, or a peft adapter folder, for a model of this architecture."""
    settings = {}
    if path.is_dir():
        settings = json.loads((path / "adapter_config.json").read_text())
        path = path / "adapter_model.safetensors"
    elif (path.parent / "adapter_config.json").is_file() and path.name.startswith("adapter_model"):
        settings = json.loads((path.parent / "adapter_config.json").read_text())
    with open_tensors(path) as file:
        layers = _read_layers(file, _Names(architecture), _declared_alpha(file.metadata, settings))
    _check_fit(file.path, layers, architecture)
    return Adapter(path.stem, layers)


def _read_layers(
    file: TensorFile, names: _Names, declared_alpha: Callable[[Target], float | None]
) -> dict[Target, LayerUpdate]:
    pieces: dict[Target, dict[str, Tensor]] = defaultdict(dict)
    for key in file.keys():
        for mark, method in OTHER_METHODS.items():
            if mark in key:
                raise ModelFileError(file.path, f"{key!r} belongs to {method}, which is not supported: LoRA is")
        # peft may put the adapter's name before `.weight`.
        plain = re.sub(r"\.(lora_[AB])\.[^.]+\.weight$", r".\1.weight", key)
        ending, piece = next(((e, p) for e, p in PIECES if plain.endswith(e)), ("", ""))
        target = names.find(plain.removesuffix(ending)) if ending else None
        if target is None:
            raise ModelFileError(file.path, f"{key!r} names no layer of {names.title}; is it for another base model?")
        pieces[target][piece] = file.read(key)
    return {target: _update(file.path, target, found, declared_alpha(target)) for target, found in pieces.items()}


def _update(file: Path, target: Target, pieces: Mapping[str, Tensor], declared: float | None) -> LayerUpdate:
    layer = ".".join(target)
    for wanted in ("down", "up"):
        if wanted not in pieces:
            raise ModelFileError(file, f"the update of {layer} has no {wanted!r} matrix")
    down, up = pieces["down"], pieces["up"]
    if down.dim() < 2 or up.dim() < 2 or ("middle" not in pieces and up.shape[1] != down.shape[0]):
        rule = f"{layer}: the ranks differ, down is {list(down.shape)} and up is {list(up.shape)}"
        raise ModelFileError(file, rule)
    rank = float(down.shape[0])
    alpha = float(pieces["alpha"]) if "alpha" in pieces else (declared if declared is not None else rank)
    return LayerUpdate(down, up, alpha, pieces.get("middle"))


def _declared_alpha(metadata: Mapping[str, str], settings: Mapping[str, object]) -> Callable[[Target], float | None]:
    """Alpha where the file keeps it apart from the tensors: peft's settings, or diffusers' metadata."""
    try:
        noted = json.loads(metadata.get("lora_adapter_metadata", "{}"))
    except ValueError:
        noted = {}

    def alpha(target: Target) -> float | None:
        part, module = target
        prefix = f"{part}." if any(key.startswith(f"{part}.") for key in noted) else ""
        source = settings or {key.removeprefix(prefix): value for key, value in noted.items()}
        patterns = source.get("alpha_pattern")
        if isinstance(patterns, dict):
            for pattern, value in patterns.items():
                if re.search(rf"(^|\.){pattern}$", module):
                    return float(value)
        value = source.get("lora_alpha")
        return float(value) if isinstance(value, int | float) else None

    return alpha


class _Names:
    """Finds the (part, module) that a name in a file means."""

    def __init__(self, architecture: Architecture) -> None:
        self.title = architecture.title
        self._parts = {
            part: {name.removesuffix(".weight") for name in architecture.tensor_shapes(part) if name.endswith(".weight")}
            for part in architecture.parts()
            if part != "vae"
        }
        self._flat = {
            part: {module.replace(".", "_"): module for module in modules} for part, modules in self._parts.items()
        }
        originals = unet_naming.module_names(architecture.unet)
        for module in self._parts["unet"]:
            prefix = max((m for m in originals if f"{module}.".startswith(f"{m}.")), key=len)
            original = originals[prefix] + module.removeprefix(prefix)
            self._flat["unet"][original.replace(".", "_")] = module

    def find(self, name: str) -> Target | None:
        for prefix, part in KOHYA_PARTS.items():
            if name.startswith(prefix):
                module = self._flat.get(part, {}).get(name.removeprefix(prefix))
                return (part, module) if module else None
        return self._dotted(name)

    def _dotted(self, name: str) -> Target | None:
        name = name.removeprefix("base_model.model.")
        for old, new in OLD_DIFFUSERS:
            name = name.replace(old, new)
        part, _, module = name.partition(".")
        if part not in self._parts:
            part, module = ("text_encoder" if name.startswith("text_model.") else "unet"), name
        for candidate in (module, f"text_model.{module}", module.replace(".to_out", ".to_out.0")):
            if candidate in self._parts.get(part, ()):
                return part, candidate
        return None


def _check_fit(file: Path, layers: Mapping[Target, LayerUpdate], architecture: Architecture) -> None:
    for (part, module), update in layers.items():
        shape = architecture.tensor_shapes(part)[f"{module}.weight"]
        inputs = update.down[0].numel() if update.middle is None else update.down.shape[1]
        expected = shape[1] if update.middle is not None else _inputs(shape)
        if update.up.shape[0] != shape[0] or inputs != expected:
            base = BASE_BY_CONTEXT.get(update.down.shape[1], "another base") if "attn2.to_k" in module else "another base"
            rule = f"{part}.{module}: the update is {update.up.shape[0]}×{inputs}, the layer is {shape[0]}×{expected}"
            raise ModelFileError(file, f"{rule}; the LoRA is for {base}, the model is {architecture.title}")


def _inputs(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape[1:]:
        product *= size
    return product
