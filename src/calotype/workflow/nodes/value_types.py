"""The values on MODEL, CLIP, VAE and CONTROL_NET links: descriptions, not modules.

Branches with different LoRAs or presets hold different values, so they cannot affect each other, and a cache
of values keeps no weights in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LoraStack = tuple[tuple[str, float], ...]
"""Names in the model folder's `loras`, each with its strength, in the order they were added."""


@dataclass(frozen=True)
class ModelValue:
    """A checkpoint's UNet with its LoRAs and preset."""

    reference: str
    """The checkpoint's reference for `models.resolve`."""
    loras: LoraStack = ()
    preset: str | None = None
    """The engine's preset; the host's by default."""

    def with_lora(self, name: str, strength: float) -> ModelValue:
        return replace(self, loras=(*self.loras, (name, strength)))


@dataclass(frozen=True)
class ClipValue:
    """A checkpoint's text encoders with their LoRAs and last layer."""

    reference: str
    loras: LoraStack = ()
    last_layer: int | None = None
    """The layer to stop at, counted from the end (−1 is the last); the model's own by default."""

    def with_lora(self, name: str, strength: float) -> ClipValue:
        return replace(self, loras=(*self.loras, (name, strength)))

    def stopping_at(self, layer: int) -> ClipValue:
        return replace(self, last_layer=layer)


@dataclass(frozen=True)
class VaeValue:
    """A checkpoint's VAE, or a separate one."""

    reference: str
    alone: bool = False
    """Whether `reference` is the path of a VAE instead of a checkpoint."""


@dataclass(frozen=True)
class ControlNetValue:
    """A ControlNet, loaded once its model is known."""

    path: str
