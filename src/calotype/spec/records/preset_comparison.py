"""What is remembered about presets side by side: what each costs, and what it does to pictures.

Knows nothing of torch.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from calotype.spec.records.image import ModelIdentity
from calotype.spec.records.quality import Accuracy, Comparison, Spread

Outcome = Literal["OK", "cannot run", "OOM", "Error!"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PictureCompared(_Frozen):
    """One picture of one preset."""

    prompt: str
    seed: int
    wall_s: float
    """From the request to pixels on the host."""
    device_s: float | None
    """The same between two CUDA events; None without a GPU."""
    png_bytes: int
    psnr_db: float | None
    """To the reference's picture; None for that picture itself, and so are the next two."""
    ssim: float | None
    layer_distances: list[float] | None
    """Feature distance at each layer of the recogniser, the earliest first; None where it does not judge."""
    judged: dict[str, str | None] | None
    """Emoji, style and background that the recogniser sees; None where it does not judge."""


class Figures(_Frozen):
    """Over all pictures of a preset."""

    weights_bytes: int
    """Of the model's own weights on the device, in the precision it was loaded in."""
    resident_bytes: int | None
    """What stays on the GPU between pictures: weights, copies in eight bits, graphs; None without one."""
    peak_bytes: int | None
    """The most that tensors took on the GPU while pictures were made; None without one."""
    wall_s: Spread
    device_s: Spread | None
    png_bytes: Spread
    likeness: Comparison | None
    """To the reference's pictures; None for the reference itself."""
    feature_distance: Spread | None
    """To the reference's pictures, the mean over the recogniser's layers; None where it does not judge."""
    recognised: Accuracy | None
    """Of prompts in the usual wording: what they ask for. None if there are none, or nobody judges."""
    agreeing: Accuracy | None
    """Of other prompts: what the recogniser sees in the reference's picture. None as above."""


class PresetRow(_Frozen):
    """One preset, whatever became of it."""

    preset: str
    precision: str
    outcome: Outcome
    message: str | None
    """Why there are no figures."""
    figures: Figures | None
    pictures: list[PictureCompared]


class CompareRecord(_Frozen):
    """Presets beside a reference, on the same prompts and seeds."""

    format: Literal["calotype.compare.1"] = "calotype.compare.1"
    command: str
    model: ModelIdentity
    device: str
    request: dict[str, Any]
    """What all pictures share."""
    reference: PresetRow
    presets: list[PresetRow]
    recogniser_sha256: str | None
    """Who judged; None if the model's pictures are nothing it knows."""
    fingerprint: dict[str, Any]
