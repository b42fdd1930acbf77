"""Record of a preset comparison: cost and image quality of each preset."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from calotype.spec.records.image import ModelIdentity
from calotype.spec.records.quality import Accuracy, Comparison, Spread

Outcome = Literal["OK", "cannot run", "OOM", "Error!"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PictureCompared(_Frozen):
    """One image of one preset."""

    prompt: str
    seed: int
    wall_s: float
    """From the request to pixels on the host."""
    device_s: float | None
    """The same between two CUDA events; None without a GPU."""
    png_bytes: int
    psnr_db: float | None
    """To the reference image; None for the reference itself, as are the next two."""
    ssim: float | None
    layer_distances: list[float] | None
    """Feature distance at each layer of the recogniser, the earliest first; None if it does not apply."""
    judged: dict[str, str | None] | None
    """Emoji, style and background as classified; None if the classifier does not apply."""


class Figures(_Frozen):
    """Statistics over all images of a preset."""

    weights_bytes: int
    """Of the model's own weights on the device, in the precision it was loaded in."""
    resident_bytes: int | None
    """What stays on the GPU between images: weights, copies in eight bits, graphs; None without one."""
    peak_bytes: int | None
    """Peak tensor memory on the GPU during generation; None without one."""
    wall_s: Spread
    device_s: Spread | None
    png_bytes: Spread
    likeness: Comparison | None
    """To the reference images; None for the reference itself."""
    feature_distance: Spread | None
    """To the reference images, the mean over the layers of the classifier; None if it does not apply."""
    recognised: Accuracy | None
    """Accuracy on prompts in the usual wording. None if there are none, or without a classifier."""
    agreeing: Accuracy | None
    """Agreement with the classes of the reference images, on other prompts. None as above."""


class PresetRow(_Frozen):
    """One preset, measured or failed."""

    preset: str
    precision: str
    outcome: Outcome
    message: str | None
    """Why there are no statistics."""
    figures: Figures | None
    pictures: list[PictureCompared]


class CompareRecord(_Frozen):
    """Presets compared with a reference, on the same prompts and seeds."""

    format: Literal["calotype.compare.1"] = "calotype.compare.1"
    command: str
    model: ModelIdentity
    device: str
    request: dict[str, Any]
    """Settings that all images share."""
    reference: PresetRow
    presets: list[PresetRow]
    recogniser_sha256: str | None
    """Hash of the classifier; None if it does not apply to the model."""
    fingerprint: dict[str, Any]
