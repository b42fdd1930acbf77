"""Records of the emoji classifier, and of the image quality of a model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from calotype.spec.records.image import ModelIdentity


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Accuracy(_Frozen):
    """Shares of correctly classified images, from 0 to 1."""

    pictures: int
    emoji_top1: float
    """Variants in skin tone and gender count as the same emoji."""
    emoji_top5: float
    style: float | None
    """Of images whose prompt names a style; None if there are none."""
    background: float | None
    """Of images whose prompt names a background; None if there are none."""


class Spread(_Frozen):
    """Distribution of a value over images."""

    mean: float
    p5: float
    median: float
    p95: float


class Confusion(_Frozen):
    """One emoji taken for another."""

    shown: str
    judged: str
    times: int


class ClassifierRecord(_Frozen):
    """An emoji classifier, stored next to its weights."""

    format: Literal["calotype.emoji-recogniser.1"] = "calotype.emoji-recogniser.1"
    weights_sha256: str
    artwork_sha256: str
    """Hash of the packages and colors it was trained on."""
    data_sha256: str
    """Hash of its training shards."""
    command: str
    lesson: dict[str, Any]
    emoji: dict[str, str]
    """Sequence and name of each emoji, in the order of the network outputs."""
    twins: list[list[str]]
    """Groups of emoji that a style draws alike; each group counts as its first."""
    styles: list[str]
    exam: dict[str, Accuracy]
    """On held-out combinations: as they are, slightly degraded, and degraded in ways not used in training."""
    confusions: list[Confusion]
    """Of held-out images as they are and slightly degraded, the most frequent first."""
    fingerprint: dict[str, Any]


class PictureQuality(_Frozen):
    """One generated image."""

    split: str
    prompt: str
    wording: Literal["full", "free"]
    seed: int
    asked: dict[str, str | None]
    """Emoji, style and background; None for what the prompt does not name."""
    judged: dict[str, str | None]
    """The same; no background where the border has no single colour of the set."""
    place: int
    """Rank of the requested emoji among all, from 1."""
    certainty: float
    """Probability that the classifier gives the requested emoji."""
    sharpness: float
    """Edge energy relative to the real image."""
    nearest: float
    """Distance to the nearest training image, in steps of 1/255."""
    nearest_is_asked: bool
    """Whether that image shows the requested emoji in the requested style."""


class Part(_Frozen):
    """Quality of the images for one split of the data."""

    all: Accuracy
    full: Accuracy | None
    """Of prompts that name emoji, style and background in the usual words."""
    free: Accuracy | None
    """Of prompts in other words, which may leave style or background open."""
    real: Accuracy
    """The same classifier on the real images, as an upper bound."""
    sharpness: Spread
    nearest: Spread
    near_copies: float
    """Share of images that nearly equal a training image, pixel by pixel."""
    nearest_is_asked: float


class Comparison(_Frozen):
    """The same prompts and seeds under another preset."""

    preset: str
    pictures: int
    psnr_db: Spread
    worst_psnr_db: float
    ssim: Spread
    worst_ssim: float


class QualityRecord(_Frozen):
    """Image quality of a model."""

    format: Literal["calotype.quality.1"] = "calotype.quality.1"
    command: str
    model: ModelIdentity
    preset: str
    precision: str
    device: str
    request: dict[str, Any]
    """Settings that all images share."""
    data_sha256: str
    recogniser_sha256: str
    recogniser_exam: dict[str, Accuracy]
    parts: dict[str, Part]
    """By split: `train` is captions that were trained on, `heldout` combinations that were not."""
    real_nearest: Spread
    """Distance of real held-out images to the training set, to compare `nearest` with."""
    real_near_copies: float
    reconstruction_psnr_db: Spread
    """Of held-out images through the VAE of the model."""
    comparison: Comparison | None
    making_s: float
    """Seconds of generation, without loading."""
    pictures: list[PictureQuality]
    fingerprint: dict[str, Any]
