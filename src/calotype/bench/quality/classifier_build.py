"""Trains a classifier on the training part of a dataset and evaluates it on the held-out part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from calotype.bench.quality.classifier import Classifier, read_classifier, write_record, write_weights
from calotype.bench.quality.classifier_eval import evaluate_classifier
from calotype.bench.quality.classifier_model import SIDE, ClassifierNet
from calotype.bench.quality.classifier_train import Answers, TrainingBatch, fit_classifier
from calotype.bench.quality.dataset import EmojiSet, Pictures
from calotype.bench.quality.duplicates import groups, merge_identical
from calotype.core.errors import Problem, RequestError
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.device import precision_name
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.records.quality import ClassifierRecord

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class ClassifierTraining:
    """How a classifier is trained, and its output path."""

    destination: Path
    command: str
    lesson: TrainingBatch
    device: torch.device
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.destination.suffix != SUFFIX:
            rule = f"{self.destination.name!r} does not end in {SUFFIX}"
            raise RequestError([Problem("destination", rule, str(self.destination))])


def train_classifier(
    data: EmojiSet,
    how: ClassifierTraining,
    *,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Classifier:
    """Train a classifier and return it as loaded from its files."""
    progress = progress or Silent()
    train, held_out = data.read("train"), data.read("heldout")
    shown = [*train.shown, *held_out.shown]
    leaders = merge_identical(shown)
    # The shortest name of all variants.
    names = {
        one.base: one.name for one in sorted(shown, key=lambda one: (len(one.name), one.name), reverse=True)
    }
    emoji = {leader: names[leader] for leader in sorted(set(leaders.values()))}
    styles = sorted({one.style for one in shown})
    answers = _answers(train, leaders, list(emoji), styles, progress)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(how.lesson.seed)
        network = ClassifierNet(len(emoji), len(styles))
    fit_classifier(
        answers, network, how.lesson, device=how.device, dtype=how.dtype, progress=progress, cancel=cancel
    )
    # Rounded as in its file.
    network.half().float()
    record = ClassifierRecord(
        weights_sha256="",
        artwork_sha256=data.artwork_sha256,
        data_sha256=data.sha256,
        command=how.command,
        lesson={**asdict(how.lesson), "precision": precision_name(how.dtype)},
        emoji=emoji,
        twins=groups(leaders),
        styles=styles,
        exam={},
        confusions=[],
        fingerprint=full_fingerprint().as_dict(),
    )
    unwritten = Classifier(network, record, how.device)
    exam, confusions = evaluate_classifier(unwritten, held_out, data.side, progress=progress, cancel=cancel)
    found = {
        "exam": exam,
        "confusions": confusions,
        "weights_sha256": write_weights(how.destination, network),
    }
    write_record(how.destination, record.model_copy(update=found))
    return read_classifier(how.destination, how.device)


def _answers(
    pictures: Pictures,
    leaders: dict[str, str],
    emoji: Sequence[str],
    styles: Sequence[str],
    progress: Progress,
) -> Answers:
    numbers = {one: number for number, one in enumerate(emoji)}
    return Answers(
        pictures.pixels(SIDE, progress=progress),
        torch.tensor([numbers[leaders[one.base]] for one in pictures.shown]),
        torch.tensor([styles.index(one.style) for one in pictures.shown]),
    )
