"""What is remembered about a recogniser of emoji, and about a model it has judged. Knows nothing of torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from calotype.spec.records.image import ModelIdentity


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Accuracy(_Frozen):
    """Shares of pictures that were taken for what they should show, from 0 to 1."""

    pictures: int
    emoji_top1: float
    """Variants in skin tone and gender count as the same emoji."""
    emoji_top5: float
    style: float | None
    """Of those that were asked for in a style; None if none was."""
    background: float | None
    """Of those that were asked for on a background; None if none was."""


class Spread(_Frozen):
    """How a number is spread over pictures."""

    mean: float
    p5: float
    median: float
    p95: float


class Confusion(_Frozen):
    """One emoji taken for another."""

    shown: str
    judged: str
    times: int


class RecogniserRecord(_Frozen):
    """A recogniser, beside its weights."""

    format: Literal["calotype.emoji-recogniser.1"] = "calotype.emoji-recogniser.1"
    weights_sha256: str
    artwork_sha256: str
    """Of the packages and colours it learned."""
    data_sha256: str
    """Of the shards it learned from."""
    command: str
    lesson: dict[str, Any]
    emoji: dict[str, str]
    """Sequence and name of each emoji, in the order of the network's answers."""
    twins: list[list[str]]
    """Emoji that a style draws alike; all of a group are judged as its first."""
    styles: list[str]
    exam: dict[str, Accuracy]
    """On held-out combinations: as they are, slightly degraded, and in ways it never learned with."""
    confusions: list[Confusion]
    """Of held-out pictures as they are and slightly degraded, the most frequent first."""
    fingerprint: dict[str, Any]


class PictureQuality(_Frozen):
    """One generated picture."""

    split: str
    prompt: str
    wording: Literal["full", "free"]
    seed: int
    asked: dict[str, str | None]
    """Emoji, style and background; None for what the prompt does not name."""
    judged: dict[str, str | None]
    """The same; no background where the border has no single colour of the set."""
    place: int
    """Of the asked emoji among all, from 1."""
    certainty: float
    """Probability the recogniser gives the asked emoji."""
    sharpness: float
    """Energy of its edges as a share of the real picture's."""
    nearest: float
    """Distance to the nearest picture that was trained on, in steps of 1/255."""
    nearest_is_asked: bool
    """Whether that picture shows the asked emoji in the asked picture's style."""


class Part(_Frozen):
    """Pictures generated for one part of the data."""

    all: Accuracy
    full: Accuracy | None
    """Of prompts that name emoji, style and background in the usual words."""
    free: Accuracy | None
    """Of prompts in other words, which may leave style or background open."""
    real: Accuracy
    """The same judge on the real pictures of what was asked: nothing can do better."""
    sharpness: Spread
    nearest: Spread
    near_copies: float
    """Share that is nearly a picture of the training set, pixel by pixel."""
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
    """How good a model's pictures are."""

    format: Literal["calotype.quality.1"] = "calotype.quality.1"
    command: str
    model: ModelIdentity
    preset: str
    precision: str
    device: str
    request: dict[str, Any]
    """What all pictures share."""
    data_sha256: str
    recogniser_sha256: str
    recogniser_exam: dict[str, Accuracy]
    parts: dict[str, Part]
    """By the data's part: `train` is captions that were trained on, `heldout` combinations that were not."""
    real_nearest: Spread
    """Distance of real held-out pictures to the training set, to compare `nearest` with."""
    real_near_copies: float
    reconstruction_psnr_db: Spread
    """Of held-out pictures through the model's autoencoder."""
    comparison: Comparison | None
    making_s: float
    """Seconds that generating took, loading not counted."""
    pictures: list[PictureQuality]
    fingerprint: dict[str, Any]
