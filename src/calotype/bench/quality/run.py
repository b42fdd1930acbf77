"""Measures a model: generates emoji, scores them, and writes record, summary and contact sheets.

Files are written after all measurements, the record last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calotype.bench.quality import image_metrics
from calotype.bench.quality.classifier import Classifier
from calotype.bench.quality.contact_sheets import Case, write_restored, write_sheets
from calotype.bench.quality.dataset import EmojiSet, Pictures, Shown
from calotype.bench.quality.generate import check_size, generate_images, reconstruct_images
from calotype.bench.quality.prompts import EvalPrompt, eval_prompts
from calotype.bench.quality.report import summary
from calotype.bench.quality.score import ImageScore, accuracy, all_of, score_images
from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.device import device_name, precision_name
from calotype.engine.engine import Engine
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.quality import Accuracy, Comparison, Part, PictureQuality, QualityRecord

TRAIN, HELD_OUT = "train", "heldout"
RECORD, SUMMARY = "results.json", "README.md"
_MIN_EDGES = 1e-3

_Figures = tuple[Part, list[PictureQuality]]


@dataclass(frozen=True)
class QualityPlan:
    """The prompts, the request and the output folder."""

    command: str
    """The command line that repeats the measurement."""
    out: Path
    request: GenerateRequest
    """The request that all images share; its seed is that of the first image."""
    count: int = 500
    """Number of images for each part of the data."""
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RequestError([Problem("--count", f"{self.count} is too few; at least 1", self.count)])


@dataclass(frozen=True)
class _Found:
    """A part of the data with its generated images and their scores."""

    pictures: Pictures
    questions: Sequence[EvalPrompt]
    real: Tensor
    made: Tensor
    verdicts: Sequence[ImageScore]
    making_s: float

    def accuracy_of(self, wording: str) -> Accuracy | None:
        """Return the accuracy over the prompts of one kind; None without any."""
        told = zip(self.questions, self.verdicts, strict=True)
        chosen = [verdict for one, verdict in told if one.wording == wording]
        return accuracy(chosen) if chosen else None


class _Measurement:
    """The shared state of one measurement."""

    def __init__(
        self,
        engine: Engine,
        recogniser: Classifier,
        data: EmojiSet,
        plan: QualityPlan,
        progress: Progress,
        cancel: CancelToken,
    ) -> None:
        self.engine, self.recogniser, self.data, self.plan = engine, recogniser, data, plan
        self.progress, self.cancel = progress, cancel

    def made(self, engine: Engine, asked: Sequence[EvalPrompt], label: str) -> Tensor:
        requests = [self.plan.request.with_changes(prompt=one.prompt, seed=one.seed) for one in asked]
        self.progress.start(label, len(requests))
        return generate_images(
            engine, requests, batch_size=self.plan.batch_size, progress=self.progress, cancel=self.cancel
        )

    def judged(self, split: str) -> _Found:
        pictures = self.data.read(split)
        asked = eval_prompts(pictures.shown, self.plan.count, self.plan.request.seed)
        started = time.perf_counter()
        pixels = self.made(self.engine, asked, f"generating {split}")
        making_s = time.perf_counter() - started
        real = pictures.pixels(self.data.side, [one.real for one in asked])
        verdicts = score_images(pixels, [one.asked for one in asked], self.recogniser)
        return _Found(pictures, asked, real, pixels, verdicts, making_s)

    def part(self, split: str, found: _Found, trained: Pictures, many: Tensor) -> _Figures:
        """Return the metrics of a part and of each of its images."""
        distance, which = image_metrics.nearest(image_metrics.small(found.made), many)
        edges = image_metrics.sharpness(found.made) / image_metrics.sharpness(found.real).clamp(
            min=_MIN_EDGES
        )
        same = [
            self._same(trained.shown[near], found.pictures.shown[one.real])
            for near, one in zip(which.tolist(), found.questions, strict=True)
        ]
        real = [all_of(found.pictures.shown[one.real]) for one in found.questions]
        part = Part(
            all=accuracy(found.verdicts),
            full=found.accuracy_of("full"),
            free=found.accuracy_of("free"),
            real=accuracy(score_images(found.real, real, self.recogniser)),
            sharpness=image_metrics.spread(edges),
            nearest=image_metrics.spread(distance),
            near_copies=_share_of_copies(distance),
            nearest_is_asked=sum(same) / len(same),
        )
        numbers = zip(edges.tolist(), distance.tolist(), same, strict=True)
        told = zip(found.questions, found.verdicts, numbers, strict=True)
        return part, [_row(split, one, verdict, *three) for one, verdict, three in told]

    def _same(self, one: Shown, other: Shown) -> bool:
        number_of = self.recogniser.number_of
        return number_of(one.base) == number_of(other.base) and one.style == other.style


def measure(
    engine: Engine,
    recogniser: Classifier,
    data: EmojiSet,
    plan: QualityPlan,
    *,
    other: Callable[[], Engine] | None = None,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> QualityRecord:
    """Measure a model; `other` loads the engine to compare images with, after everything else."""
    recogniser.check_made_for(data)
    check_size(engine, data.side)
    progress = progress or Silent()
    one = _Measurement(engine, recogniser, data, plan, progress, cancel or CancelToken())
    found = {split: one.judged(split) for split in (TRAIN, HELD_OUT)}
    trained, held_out = found[TRAIN].pictures, found[HELD_OUT]
    many = trained.pixels(image_metrics.COMPARED_SIDE, progress=progress)
    parts, rows = {}, []
    for split, part in found.items():
        parts[split], of_part = one.part(split, part, trained, many)
        rows += of_part
    real_distance, _ = image_metrics.nearest(image_metrics.small(held_out.real), many)
    back, near = reconstruct_images(engine, held_out.real, one.cancel)
    record = QualityRecord(
        command=plan.command,
        model=engine.model.identity,
        preset=engine.preset,
        precision=precision_name(engine.model.dtype),
        device=device_name(engine.model.device),
        request=plan.request.model_dump(mode="json", exclude={"prompt"}),
        data_sha256=data.sha256,
        recogniser_sha256=recogniser.record.weights_sha256,
        recogniser_exam=recogniser.record.exam,
        parts=parts,
        real_nearest=image_metrics.spread(real_distance),
        real_near_copies=_share_of_copies(real_distance),
        reconstruction_psnr_db=image_metrics.spread(near),
        comparison=_compared(one, found, other()) if other else None,
        making_s=sum(part.making_s for part in found.values()),
        pictures=rows,
        fingerprint=full_fingerprint().as_dict(),
    )
    _write(record, found, recogniser, plan.out, (back, near))
    return record


def _row(
    split: str, one: EvalPrompt, verdict: ImageScore, sharpness: float, nearest: float, nearest_is_asked: bool
) -> PictureQuality:
    asked = one.asked
    return PictureQuality(
        split=split,
        prompt=one.prompt,
        wording=one.wording,
        seed=one.seed,
        asked={"emoji": asked.base, "style": asked.style, "background": asked.background},
        judged={"emoji": verdict.emoji, "style": verdict.style, "background": verdict.background},
        place=verdict.place,
        certainty=verdict.certainty,
        sharpness=sharpness,
        nearest=nearest,
        nearest_is_asked=nearest_is_asked,
    )


def _compared(one: _Measurement, found: dict[str, _Found], other: Engine) -> Comparison:
    mine = torch.cat([part.made for part in found.values()])
    label = f"generating with {other.preset}"
    # By parts as before, so that the batches are equal and only the presets differ.
    theirs = torch.cat([one.made(other, part.questions, label) for part in found.values()])
    return image_metrics.comparison(
        other.preset, image_metrics.psnr(theirs, mine), image_metrics.ssim(theirs, mine)
    )


def _share_of_copies(distance: Tensor) -> float:
    return float((distance < image_metrics.NEAR_COPY).double().mean())


def _write(
    record: QualityRecord,
    found: dict[str, _Found],
    recogniser: Classifier,
    folder: Path,
    reconstruction: tuple[Tensor, Tensor],
) -> None:
    names = recogniser.record.emoji
    sheets = {"reconstructions": folder / "reconstructions.png"}
    back, near = reconstruction
    write_restored(sheets["reconstructions"], found[HELD_OUT].real, back, near.tolist())
    for split, part in found.items():
        cases = [
            Case(*four) for four in zip(part.questions, part.verdicts, part.made, part.real, strict=True)
        ]
        sheets |= {path.stem: path for path in write_sheets(folder, split, cases, names)}
    with atomic_write(folder / SUMMARY, "w") as file:
        file.write(summary(record, sheets))
    with atomic_write(folder / RECORD, "w") as file:
        file.write(record.model_dump_json(indent=1) + "\n")
