"""The record inside an image: enough to reproduce it and to detect differences."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from calotype.spec.generate_request import GenerateRequest


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ModelIdentity(_Frozen):
    """The weights that generated an image."""

    reference: str
    """As requested: a catalogue name, a path, a hub id."""
    architecture: str
    sha256: str
    """Of the file, or of the names and contents of all weight files of a folder."""
    random: bool = False
    """True when the weights are seeded random numbers: the image shows noise."""


class GridAxis(_Frozen):
    """One varied setting of a contact sheet and its values."""

    knob: str
    values: list[Any]


class PictureRecord(_Frozen):
    """Record stored inside every image file."""

    calotype: str
    """Version that generated it."""
    request: dict[str, Any]
    """The whole request for this image alone: its own seed, a count of one."""
    model: ModelIdentity
    preset: str
    precision: str
    device: str
    """'cpu', or the GPU's name."""
    versions: dict[str, str]
    prediction: str | None = None
    """Prediction type of the UNet: epsilon, v_prediction or sample."""
    files: dict[str, str] = {}
    """LoRAs, textual inversions and VAE that were used: name in the model folder → sha256."""
    grid: list[GridAxis] = []
    """Settings that a contact sheet varies; empty for a single image."""

    def generate_request(self) -> GenerateRequest:
        """The request that reproduces this image."""
        return GenerateRequest.parse(self.request)
