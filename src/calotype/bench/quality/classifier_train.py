"""Trains the classifier on the real artwork; a seed reproduces the weights on the same machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from calotype.bench.quality.augmentations import USUAL, augment
from calotype.bench.quality.classifier_model import ClassifierNet
from calotype.core.progress import CancelToken, Progress, Silent

_MAX_RATE = 3e-3
_WARM_UP = 0.15
_DECAY = 0.05
_SMOOTHING = 0.1
_STYLE_SHARE = 0.2


@dataclass(frozen=True)
class TrainingBatch:
    """Duration and batch size of training."""

    epochs: int = 8
    batch_size: int = 128
    seed: int = 0


@dataclass(frozen=True)
class Answers:
    """The training images, (number, 3, side, side) as uint8, with their labels."""

    pixels: Tensor
    emoji: Tensor
    style: Tensor


def fit_classifier(
    answers: Answers,
    network: ClassifierNet,
    lesson: TrainingBatch,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> None:
    """Train `network` in place; it ends on `device` in evaluation mode."""
    progress, cancel = progress or Silent(), cancel or CancelToken()
    network.to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=_DECAY)
    total = lesson.epochs * _batches_in(len(answers.emoji), lesson.batch_size)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, _MAX_RATE, total_steps=total, pct_start=_WARM_UP, cycle_momentum=False
    )
    # All of them at once: a GPU would wait for the host otherwise.
    pixels, emoji, style = (part.to(device) for part in (answers.pixels, answers.emoji, answers.style))
    draws = torch.Generator(device).manual_seed(lesson.seed)
    progress.start("learning", total)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        for places in _order(len(emoji), lesson):
            cancel.check()
            batch = places.to(device)
            pictures = augment(as_floats(pixels[batch]), USUAL, draws)
            loss = _loss(network, pictures, emoji[batch], style[batch], dtype)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            progress.describe(f"training, loss {loss.item():.3f}")
            progress.advance()
    network.eval().requires_grad_(False)


def as_floats(pixels: Tensor) -> Tensor:
    """From −1 to 1."""
    return pixels.float() / 127.5 - 1


def _loss(
    network: ClassifierNet, pictures: Tensor, emoji: Tensor, style: Tensor, dtype: torch.dtype
) -> Tensor:
    with torch.autocast(pictures.device.type, dtype, enabled=dtype != torch.float32):
        of_emoji, of_style = network(pictures.contiguous(memory_format=torch.channels_last))
    wrong = cross_entropy(of_emoji.float(), emoji, label_smoothing=_SMOOTHING)
    return wrong + _STYLE_SHARE * cross_entropy(of_style.float(), style)


def _batches_in(count: int, batch_size: int) -> int:
    return max(1, count // batch_size)


def _order(count: int, lesson: TrainingBatch) -> Iterator[Tensor]:
    """Shuffle every epoch; an incomplete batch continues in the next epoch."""
    shuffle = torch.Generator().manual_seed(lesson.seed)
    for _ in range(lesson.epochs):
        places = torch.randperm(count, generator=shuffle)
        for number in range(_batches_in(count, lesson.batch_size)):
            yield places[number * lesson.batch_size : (number + 1) * lesson.batch_size]
