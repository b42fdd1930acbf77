"""Which layer of a model a name in a LoRA file means.

kohya flattens module names with underscores (and writes SDXL in the original names); diffusers and peft keep
the dots; so does ComfyUI, with the original names in the UNet and its own for text encoders. A name is looked
up among the architecture's own layers, never guessed from its underscores. Knows nothing of tensors.
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
    """Finds the (part, module) that a name in a file means."""

    def __init__(self, architecture: Architecture, part: str | None = None) -> None:
        """With `part`, names that do not say which part they are of are looked up in that one only."""
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
        self._unsaid = [part] if part in self._layers else parts

    def find(self, name: str) -> Target | None:
        """The layer that `name` (without the ending that says which matrix it is) means."""
        for prefix, part in (KOHYA_PARTS | COMFY_PARTS).items():
            if name.startswith(prefix):
                layer = self._flat.get(part, {}).get(name.removeprefix(prefix).replace(".", "_"))
                return (part, layer) if layer else None
        return self._dotted(name.replace(PEFT_PREFIX, ""))

    def _dotted(self, name: str) -> Target | None:
        for old, new in OLD_DIFFUSERS:
            name = name.replace(old, new)
        said, _, rest = name.partition(".")
        places = [(said, rest)] if said in self._layers else [(part, name) for part in self._unsaid]
        for part, module in places:
            # Newer transformers have no `text_model` level; old attention processors no list of outputs.
            for candidate in (module, f"text_model.{module}", f"{module}.0"):
                if candidate in self._layers[part]:
                    return part, candidate
        return None


def _layers(shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Linear and convolution layers: what has a weight of two dimensions or more and is no table."""
    weights = {name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) > 1}
    return {layer for layer in weights if not layer.endswith(NOT_LAYERS)}
