"""Evaluates the classifier on real held-out images, unchanged and degraded."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable

import torch
from PIL import Image
from torch import Tensor

from calotype.bench.quality.augmentations import SLIGHT, augment
from calotype.bench.quality.classifier import Classifier
from calotype.bench.quality.classifier_train import as_floats
from calotype.bench.quality.dataset import Pictures, scaled
from calotype.bench.quality.score import ImageScore, accuracy, all_of, score_images
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.vae import to_image
from calotype.spec.records.quality import Accuracy, Confusion

_SEED = 1
_JPEG_QUALITY = 30
_TILES = 4
_AT_A_TIME = 256
_MAX_CONFUSIONS = 40
CLEAN, DEGRADED, COMPRESSED, SCRAMBLED = "clean", "degraded", "compressed", "scrambled"


def evaluate_classifier(
    recogniser: Classifier,
    real: Pictures,
    side: int,
    *,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> tuple[dict[str, Accuracy], list[Confusion]]:
    """Return the accuracy on images: unchanged, degraded, strongly compressed, and with shuffled tiles.

    Training used only the slight degradation. Shuffled images no longer show the emoji: a high accuracy there
    would mean that the classifier accepts anything.
    """
    progress, cancel = progress or Silent(), cancel or CancelToken()
    draws = torch.Generator().manual_seed(_SEED)
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        CLEAN: lambda pixels: pixels,
        DEGRADED: lambda pixels: _degraded(pixels, draws),
        COMPRESSED: _compressed,
        SCRAMBLED: lambda pixels: _scrambled(pixels, draws),
    }
    verdicts: dict[str, list[ImageScore]] = {way: [] for way in ways}
    places = range(0, len(real), _AT_A_TIME)
    progress.start("examining", len(places))
    for start in places:
        cancel.check()
        which = range(start, min(start + _AT_A_TIME, len(real)))
        pixels, asked = real.pixels(side, which), [all_of(real.shown[number]) for number in which]
        for way, spoil in ways.items():
            verdicts[way] += score_images(spoil(pixels), asked, recogniser)
        progress.advance()
    figures = {way: accuracy(found) for way, found in verdicts.items()}
    return figures, _confusions(verdicts[CLEAN] + verdicts[DEGRADED], recogniser)


def _degraded(pixels: Tensor, draws: torch.Generator) -> Tensor:
    return _as_bytes(augment(as_floats(pixels), SLIGHT, draws))


def _compressed(pixels: Tensor) -> Tensor:
    return torch.stack([_through_jpeg(to_image(picture)) for picture in as_floats(pixels)])


def _through_jpeg(image: Image.Image) -> Tensor:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=_JPEG_QUALITY)
    return scaled(Image.open(file), image.width)


def _scrambled(pixels: Tensor, draws: torch.Generator) -> Tensor:
    """Shuffle the tiles of each image."""
    count, channels, side = pixels.shape[:3]
    tile = side // _TILES
    tiles = pixels.unfold(2, tile, tile).unfold(3, tile, tile).reshape(count, channels, _TILES**2, tile, tile)
    order = torch.randperm(_TILES**2, generator=draws)
    mixed = tiles[:, :, order].reshape(count, channels, _TILES, _TILES, tile, tile)
    return mixed.permute(0, 1, 2, 4, 3, 5).reshape(count, channels, _TILES * tile, _TILES * tile)


def _as_bytes(pictures: Tensor) -> Tensor:
    return ((pictures + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def _confusions(verdicts: list[ImageScore], recogniser: Classifier) -> list[Confusion]:
    names = recogniser.record.emoji
    wrong = Counter(
        (names[recogniser.emoji[recogniser.number_of(one.asked.base)]], names[one.emoji])
        for one in verdicts
        if one.place > 1
    )
    ordered = sorted(wrong.items(), key=lambda item: (-item[1], item[0]))
    return [Confusion(shown=shown, judged=taken, times=n) for (shown, taken), n in ordered[:_MAX_CONFUSIONS]]
