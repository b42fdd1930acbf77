"""What the recogniser of emoji thinks of pictures: whether they show what was asked, or what others show.

A prompt in the usual wording says itself what its picture should show. For any other it is what the
recogniser sees in the reference's picture. Makes no picture.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from calotype.bench.quality.background_check import background_of
from calotype.bench.quality.classifier import Classifier, read_classifier, shipped
from calotype.bench.quality.score import ExpectedLabels, ImageScore, accuracy, score_images
from calotype.datasets.emoji.artwork import STYLES
from calotype.datasets.emoji.backgrounds import BACKGROUNDS
from calotype.models.model import Model
from calotype.spec.records.quality import Accuracy

_VOCABULARY = "emoji"
_STYLE_OF = {word: style.name for style in STYLES for word in style.words}
_USUAL = re.compile(
    rf"(?:an? )?(?P<emoji>.+), (?P<style>{'|'.join(_STYLE_OF)}) style, "
    rf"on an? (?P<background>{'|'.join(BACKGROUNDS)}) background"
)


def classifier_for(model: Model) -> Classifier | None:
    """The shipped one, for models that learned the emoji's own vocabulary; None for all others."""
    if any(tokenizer["vocabulary"] != _VOCABULARY for tokenizer in model.architecture.tokenizers):
        return None
    # Not on the GPU, whose memory is being measured.
    return read_classifier(shipped(), torch.device("cpu"))


def expected_in(prompt: str, recogniser: Classifier) -> ExpectedLabels | None:
    """What a prompt in the usual wording names; None for other wordings and unknown emoji."""
    found = _USUAL.fullmatch(prompt.strip())
    bases = {name: base for base, name in recogniser.record.emoji.items()}
    if not found or found["emoji"] not in bases:
        return None
    return ExpectedLabels(bases[found["emoji"]], _STYLE_OF[found["style"]], found["background"])


class ClassifierScores:
    """Judges one preset after another against the same questions and the same reference."""

    def __init__(self, recogniser: Classifier, prompts: Sequence[str], reference: Tensor) -> None:
        self.recogniser, self._reference = recogniser, reference
        named = [expected_in(prompt, recogniser) for prompt in prompts]
        self._usual = [asked is not None for asked in named]
        seen = _seen_in(reference, recogniser)
        self._asked = [asked or other for asked, other in zip(named, seen, strict=True)]

    def verdicts(self, pixels: Tensor) -> list[ImageScore]:
        """On pictures in the order of the prompts, (number, 3, height, width) in uint8."""
        return score_images(pixels, self._asked, self.recogniser)

    def recognised(self, verdicts: Sequence[ImageScore]) -> Accuracy | None:
        """Over prompts in the usual wording."""
        return _accuracy([one for one, usual in zip(verdicts, self._usual, strict=True) if usual])

    def agreeing(self, verdicts: Sequence[ImageScore]) -> Accuracy | None:
        """Over all other prompts."""
        return _accuracy([one for one, usual in zip(verdicts, self._usual, strict=True) if not usual])

    def distances(self, pixels: Tensor) -> Tensor:
        """To the reference's pictures, at each layer."""
        return self.recogniser.feature_distances(pixels, self._reference)


def _seen_in(pixels: Tensor, recogniser: Classifier) -> list[ExpectedLabels]:
    seen = recogniser.classify(pixels)
    emoji, style = seen.emoji.argmax(1).tolist(), seen.style.argmax(1).tolist()
    return [
        ExpectedLabels(recogniser.emoji[one], recogniser.styles[other], background_of(picture))
        for one, other, picture in zip(emoji, style, pixels, strict=True)
    ]


def _accuracy(verdicts: Sequence[ImageScore]) -> Accuracy | None:
    return accuracy(verdicts) if verdicts else None
