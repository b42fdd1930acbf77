"""What travels on MODEL, CLIP, VAE and CONTROL_NET links: descriptions, not modules.

Two branches with different LoRAs or presets hold different values, and whoever runs one says which it means;
so neither can disturb the other, and a cache of values keeps no weights in memory. Knows nothing of torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LoraStack = tuple[tuple[str, float], ...]
"""Names in the model folder's `loras`, each with its strength, in the order they were added."""


@dataclass(frozen=True)
class ModelValue:
    """A checkpoint's UNet with what is to be done to it."""

    reference: str
    """What `models.reference` finds the checkpoint by."""
    loras: LoraStack = ()
    preset: str | None = None
    """How the engine runs it; the host's own way if nothing is said."""

    def with_lora(self, name: str, strength: float) -> ModelValue:
        return replace(self, loras=(*self.loras, (name, strength)))


@dataclass(frozen=True)
class ClipValue:
    """A checkpoint's text encoders with what is to be done to them."""

    reference: str
    loras: LoraStack = ()
    last_layer: int | None = None
    """The layer to stop at, counted from the end as −1; the model's own if nothing is said."""

    def with_lora(self, name: str, strength: float) -> ClipValue:
        return replace(self, loras=(*self.loras, (name, strength)))

    def stopping_at(self, layer: int) -> ClipValue:
        return replace(self, last_layer=layer)


@dataclass(frozen=True)
class VaeValue:
    """A checkpoint's autoencoder, or one that comes by itself."""

    reference: str
    alone: bool = False
    """Whether `reference` is the path of a VAE instead of a checkpoint."""


@dataclass(frozen=True)
class ControlNetValue:
    """A ControlNet, read when the model it works with is known."""

    path: str
