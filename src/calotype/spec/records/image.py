"""What is remembered about a picture: enough to make it again, and to know when it would differ.

Knows nothing of picture formats.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from calotype.spec.generate_request import GenerateRequest


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ModelIdentity(_Frozen):
    """Which weights made a picture."""

    reference: str
    """What was asked for: a catalogue name, a path, a hub id."""
    architecture: str
    sha256: str
    """Of the file, or of the names and contents of all weight files of a folder."""
    random: bool = False
    """True when the weights are seeded random numbers: the picture shows nothing."""


class GridAxis(_Frozen):
    """One knob of a contact sheet and its values."""

    knob: str
    values: list[Any]


class PictureRecord(_Frozen):
    """Stored inside every picture file."""

    calotype: str
    """Version that made it."""
    request: dict[str, Any]
    """The whole request, for this picture alone: its own seed, a count of one."""
    model: ModelIdentity
    preset: str
    precision: str
    device: str
    """'cpu', or the GPU's name."""
    versions: dict[str, str]
    prediction: str | None = None
    """What the UNet was taken to predict: epsilon, v_prediction or sample."""
    files: dict[str, str] = {}
    """LoRAs, learned words and VAE that were used: name in the model folder → sha256."""
    grid: list[GridAxis] = []
    """The knobs a contact sheet varies; empty for a single picture."""

    def generate_request(self) -> GenerateRequest:
        """The request that makes this picture again."""
        return GenerateRequest.parse(self.request)
