"""Scores generated or real images against their expected labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from calotype.bench.quality.background_check import background_of
from calotype.bench.quality.classifier import Classifier
from calotype.bench.quality.dataset import Shown
from calotype.spec.records.quality import Accuracy

NEAR = 5


@dataclass(frozen=True)
class ExpectedLabels:
    """The expected labels of an image; None means any."""

    base: str
    style: str | None
    background: str | None


@dataclass(frozen=True)
class ImageScore:
    """The labels of an image, compared with the expected ones."""

    asked: ExpectedLabels
    emoji: str
    style: str
    background: str | None
    place: int
    """Rank of the expected emoji, from 1."""
    certainty: float
    """Probability of the expected emoji."""


def all_of(shown: Shown) -> ExpectedLabels:
    """Return the labels of a real image."""
    return ExpectedLabels(shown.base, shown.style, shown.background)


def score_images(pixels: Tensor, asked: Sequence[ExpectedLabels], recogniser: Classifier) -> list[ImageScore]:
    """Score each of the images, (number, 3, height, width) in uint8."""
    seen = recogniser.classify(pixels)
    verdicts = []
    for picture, one, emoji, style in zip(pixels, asked, seen.emoji, seen.style, strict=True):
        certainty = emoji[recogniser.number_of(one.base)]
        verdicts.append(
            ImageScore(
                asked=one,
                emoji=recogniser.emoji[int(emoji.argmax())],
                style=recogniser.styles[int(style.argmax())],
                background=background_of(picture),
                place=1 + int((emoji > certainty).sum()),
                certainty=float(certainty),
            )
        )
    return verdicts


def accuracy(verdicts: Sequence[ImageScore]) -> Accuracy:
    """Return the accuracy over all scores; style and background only where they are expected."""
    return Accuracy(
        pictures=len(verdicts),
        emoji_top1=_share([verdict.place == 1 for verdict in verdicts]) or 0.0,
        emoji_top5=_share([verdict.place <= NEAR for verdict in verdicts]) or 0.0,
        style=_share([one.style == one.asked.style for one in verdicts if one.asked.style]),
        background=_share(
            [one.background == one.asked.background for one in verdicts if one.asked.background]
        ),
    )


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None
