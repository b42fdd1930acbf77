"""Scores images by an emoji classifier: whether they match their prompts, or the reference images.

A prompt in the standard wording determines the expected labels. For other prompts they are the classifier's
labels of the reference image.
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
_STANDARD_WORDING = re.compile(
    rf"(?:an? )?(?P<emoji>.+), (?P<style>{'|'.join(_STYLE_OF)}) style, "
    rf"on an? (?P<background>{'|'.join(BACKGROUNDS)}) background"
)


def classifier_for(model: Model) -> Classifier | None:
    """Return the shipped classifier for models with the emoji vocabulary; None for all others."""
    if any(tokenizer["vocabulary"] != _VOCABULARY for tokenizer in model.architecture.tokenizers):
        return None
    # Not on the GPU, because its memory is measured.
    return read_classifier(shipped(), torch.device("cpu"))


def expected_in(prompt: str, recogniser: Classifier) -> ExpectedLabels | None:
    """Return the labels that a prompt in the standard wording names; None for other prompts."""
    match = _STANDARD_WORDING.fullmatch(prompt.strip())
    bases = {name: base for base, name in recogniser.record.emoji.items()}
    if not match or match["emoji"] not in bases:
        return None
    return ExpectedLabels(bases[match["emoji"]], _STYLE_OF[match["style"]], match["background"])


class ClassifierScores:
    """Scores the images of presets against the same expected labels and the same reference."""

    def __init__(self, recogniser: Classifier, prompts: Sequence[str], reference: Tensor) -> None:
        self.recogniser, self._reference = recogniser, reference
        named = [expected_in(prompt, recogniser) for prompt in prompts]
        self._named = [labels is not None for labels in named]
        seen = _classify(reference, recogniser)
        self._expected = [labels or other for labels, other in zip(named, seen, strict=True)]

    def verdicts(self, pixels: Tensor) -> list[ImageScore]:
        """Score images in the order of the prompts, (number, 3, height, width) in uint8."""
        return score_images(pixels, self._expected, self.recogniser)

    def recognised(self, verdicts: Sequence[ImageScore]) -> Accuracy | None:
        """Return the accuracy over prompts in the standard wording."""
        return _accuracy([one for one, named in zip(verdicts, self._named, strict=True) if named])

    def agreeing(self, verdicts: Sequence[ImageScore]) -> Accuracy | None:
        """Return the agreement with the reference over all other prompts."""
        return _accuracy([one for one, named in zip(verdicts, self._named, strict=True) if not named])

    def distances(self, pixels: Tensor) -> Tensor:
        """Return the distances to the reference images at each layer."""
        return self.recogniser.feature_distances(pixels, self._reference)


def _classify(pixels: Tensor, recogniser: Classifier) -> list[ExpectedLabels]:
    seen = recogniser.classify(pixels)
    emoji, style = seen.emoji.argmax(1).tolist(), seen.style.argmax(1).tolist()
    return [
        ExpectedLabels(recogniser.emoji[one], recogniser.styles[other], background_of(picture))
        for one, other, picture in zip(emoji, style, pixels, strict=True)
    ]


def _accuracy(verdicts: Sequence[ImageScore]) -> Accuracy | None:
    return accuracy(verdicts) if verdicts else None
