"""Maps the names in a LoRA file to the layers of a model.

kohya flattens module names with underscores (and writes SDXL in the original names); diffusers and peft keep
the dots; so does ComfyUI, with original names in the UNet and its own prefixes for text encoders. A name is
looked up among the architecture's layers, never guessed from its underscores.
"""

from __future__ import annotations

from collections.abc import Mapping

from calotype.models.architecture import Architecture
from calotype.models.key_mapping import unet as unet_naming
from calotype.models.key_mapping.prefixes import rename_prefixes
from calotype.models.lora.adapter import Target

KOHYA_PARTS = {
    "lora_unet_": "unet",
    "lora_te1_": "text_encoder",
    "lora_te2_": "text_encoder_2",
    "lora_te_": "text_encoder",
}
COMFY_PARTS = {
    "diffusion_model.": "unet",
    "text_encoders.clip_l.transformer.": "text_encoder",
    "text_encoders.clip_h.transformer.": "text_encoder",
    "text_encoders.clip_g.transformer.": "text_encoder_2",
}
COMFY_TEXT_ENCODERS = "text_encoders."
PEFT_PREFIX = "base_model.model."
OLD_DIFFUSERS = (
    (".processor.", "."),
    (".self_attn.to_q", ".self_attn.q_proj"),
    (".self_attn.to_k", ".self_attn.k_proj"),
    (".self_attn.to_v", ".self_attn.v_proj"),
    (".self_attn.to_out", ".self_attn.out_proj"),
)
NOT_LAYERS = ("token_embedding", "position_embedding")


class LayerNames:
    """Finds the (part, module) of a name in a LoRA file."""

    def __init__(self, architecture: Architecture, part: str | None = None) -> None:
        """With `part`, names without a part are looked up in that part only."""
        parts = [name for name in architecture.parts() if name != "vae"]
        self._layers = {name: _layers(architecture.tensor_shapes(name)) for name in parts}
        self._flat = {
            name: {layer.replace(".", "_"): layer for layer in layers}
            for name, layers in self._layers.items()
        }
        originals = unet_naming.module_names(architecture.unet)
        for layer in self._layers["unet"]:
            original = rename_prefixes(layer, originals)
            if original is not None:
                self._flat["unet"][original.replace(".", "_")] = layer
        self._default_parts = [part] if part in self._layers else parts

    def find(self, name: str) -> Target | None:
        """The layer of `name`, which excludes the suffix of the matrix."""
        for prefix, part in (KOHYA_PARTS | COMFY_PARTS).items():
            if name.startswith(prefix):
                layer = self._flat.get(part, {}).get(name.removeprefix(prefix).replace(".", "_"))
                return (part, layer) if layer else None
        return self._find_dotted(name.replace(PEFT_PREFIX, ""))

    def _find_dotted(self, name: str) -> Target | None:
        for old, new in OLD_DIFFUSERS:
            name = name.replace(old, new)
        prefix, _, rest = name.partition(".")
        if prefix in self._layers:
            targets = [(prefix, rest)]
        else:
            targets = [(part, name) for part in self._default_parts]
        for part, module in targets:
            # Newer transformers lack the `text_model` level; old attention processors lack the output index.
            for candidate in (module, f"text_model.{module}", f"{module}.0"):
                if candidate in self._layers[part]:
                    return part, candidate
        return None


def _layers(shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Linear and convolution layers: modules with a weight of two or more dimensions, except embeddings."""
    weights = {name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) > 1}
    return {layer for layer in weights if not layer.endswith(NOT_LAYERS)}
