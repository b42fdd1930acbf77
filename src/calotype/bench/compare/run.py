"""Compares presets with a reference, one loaded and freed after the other, on the same prompts and seeds.

A preset that fails is a row that says why, and the others go on. Nothing is written before everything is
measured; the record comes last. Knows nothing of command lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor

from calotype.bench.compare.candidates import Candidate
from calotype.bench.compare.contact_sheet import sheet, thumbnails
from calotype.bench.compare.generate import GeneratedImages, free, generate_images
from calotype.bench.compare.report import summary
from calotype.bench.compare.score import ClassifierScores, classifier_for
from calotype.bench.quality import image_metrics
from calotype.bench.quality.classifier import Classifier
from calotype.bench.quality.score import ImageScore
from calotype.core.errors import CancelledError, DoesNotFitError, NotFoundError, Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.device import choose_dtype, device_name, is_out_of_memory, precision_name
from calotype.engine.engine import Engine
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.preset_comparison import (
    CompareRecord,
    Figures,
    Outcome,
    PictureCompared,
    PresetRow,
)

RECORD, SUMMARY, SHEET = "results.json", "README.md", "side-by-side.png"


class Load(Protocol):
    """Gives the engine of the model that is compared."""

    def __call__(self, *, preset: str, precision: str) -> Engine: ...


@dataclass(frozen=True)
class ComparePlan:
    """What to compare, and where the answer goes."""

    command: str
    """As a person would type it again."""
    out: Path
    device: torch.device
    reference: Candidate
    candidates: Sequence[Candidate]
    requests: Sequence[GenerateRequest]
    """One for each prompt, alike but for that."""

    def __post_init__(self) -> None:
        problems = []
        if not self.requests:
            problems.append(Problem("prompt", "is missing; say what to show, or use --prompts FILE"))
        if (self.out / RECORD).exists():
            rule = f"{self.out} holds results already; choose another folder or remove it"
            problems.append(Problem("--out", rule, str(self.out)))
        if problems:
            raise RequestError(problems)

    def pictures(self) -> list[GenerateRequest]:
        """One request for each picture."""
        return [
            request.with_changes(seed=seed, count=1) for request in self.requests for seed in request.seeds()
        ]


@dataclass(frozen=True)
class _Reference:
    """What every preset is held against."""

    pixels: Tensor
    judging: ClassifierScores | None


class _Comparison:
    """One comparison, with all that its steps share."""

    def __init__(self, load: Load, plan: ComparePlan, progress: Progress, cancel: CancelToken) -> None:
        self.load, self.plan, self.progress, self.cancel = load, plan, progress, cancel
        self.requests = plan.pictures()
        self.columns: dict[str, list[Image.Image]] = {}

    def engine(self, candidate: Candidate) -> Engine:
        free(self.plan.device)
        return self.load(preset=candidate.preset, precision=self.precision(candidate))

    def precision(self, candidate: Candidate) -> str:
        return precision_name(choose_dtype(candidate.precision, self.plan.device))

    def made(self, engine: Engine, label: str) -> GeneratedImages:
        made = generate_images(engine, self.requests, label, self.progress, self.cancel)
        self.columns[label] = thumbnails(made.images)
        return made

    def row(self, candidate: Candidate, standard: _Reference) -> PresetRow:
        """A preset's figures, or why there are none."""
        precision = self.precision(candidate)
        try:
            made = self.made(self.engine(candidate), self._label(candidate))
        except CancelledError:
            raise
        # Whatever one preset breaks, the others are still to be compared.
        except Exception as error:
            return PresetRow(
                preset=candidate.preset,
                precision=precision,
                outcome=_outcome(error),
                message=_message(error),
                figures=None,
                pictures=[],
            )
        return _measured(candidate.preset, precision, made, self.requests, standard)

    def _label(self, candidate: Candidate) -> str:
        alone = sum(other.preset == candidate.preset for other in self.plan.candidates) == 1
        return candidate.preset if alone else f"{candidate.preset} {self.precision(candidate)}"


def compare(
    load: Load,
    plan: ComparePlan,
    recogniser: Classifier | None = None,
    *,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> CompareRecord:
    """Compare presets and write what was found; `recogniser` judges, or the shipped one a model of emoji."""
    one = _Comparison(load, plan, progress or Silent(), cancel or CancelToken())
    engine = one.engine(plan.reference)
    # On a GPU torch would let convolutions round numbers to ten bits, and still call that fp32.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        made = one.made(engine, "reference")
    judge = recogniser or classifier_for(engine.model)
    identity, pixels = engine.model.identity, made.pixels()
    # It would stay in memory beside every other.
    del engine
    prompts = [request.prompt for request in one.requests]
    standard = _Reference(pixels, ClassifierScores(judge, prompts, pixels) if judge else None)
    reference = _measured(
        plan.reference.preset, one.precision(plan.reference), made, one.requests, standard, is_reference=True
    )
    record = CompareRecord(
        command=plan.command,
        model=identity,
        device=device_name(plan.device),
        request=plan.requests[0].model_dump(mode="json", exclude={"prompt"}),
        reference=reference,
        presets=[one.row(candidate, standard) for candidate in plan.candidates],
        recogniser_sha256=judge.record.weights_sha256 if judge else None,
        fingerprint=full_fingerprint().as_dict(),
    )
    _write(record, one)
    return record


def _outcome(error: Exception) -> Outcome:
    if isinstance(error, DoesNotFitError | MemoryError) or is_out_of_memory(error):
        return "OOM"
    return "cannot run" if isinstance(error, NotFoundError) else "Error!"


def _message(error: Exception) -> str:
    """One line, with the kind of error where its words alone may say too little."""
    words = " ".join(str(error).split())
    return words if isinstance(error, NotFoundError | DoesNotFitError) else f"{type(error).__name__}: {words}"


def _measured(
    preset: str,
    precision: str,
    made: GeneratedImages,
    requests: Sequence[GenerateRequest],
    standard: _Reference,
    *,
    is_reference: bool = False,
) -> PresetRow:
    pixels, judging = made.pixels(), standard.judging
    verdicts = judging.verdicts(pixels) if judging else None
    noise = None if is_reference else image_metrics.psnr(pixels, standard.pixels)
    alike = None if is_reference else image_metrics.ssim(pixels, standard.pixels)
    layers = judging.distances(pixels) if judging and not is_reference else None
    sizes, device_s = made.png_bytes(), [took.device for took in made.seconds if took.device is not None]
    figures = Figures(
        weights_bytes=made.weights_bytes,
        resident_bytes=made.resident_bytes,
        peak_bytes=made.peak_bytes,
        wall_s=image_metrics.spread(torch.tensor([took.wall for took in made.seconds])),
        device_s=image_metrics.spread(torch.tensor(device_s)) if device_s else None,
        png_bytes=image_metrics.spread(torch.tensor(sizes)),
        likeness=None if noise is None or alike is None else image_metrics.comparison(preset, noise, alike),
        feature_distance=None if layers is None else image_metrics.spread(layers.mean(1)),
        recognised=judging.recognised(verdicts) if judging and verdicts else None,
        agreeing=judging.agreeing(verdicts) if judging and verdicts and not is_reference else None,
    )
    pictures = [
        PictureCompared(
            prompt=request.prompt,
            seed=request.seed,
            wall_s=made.seconds[number].wall,
            device_s=made.seconds[number].device,
            png_bytes=sizes[number],
            psnr_db=None if noise is None else float(noise[number]),
            ssim=None if alike is None else float(alike[number]),
            layer_distances=None if layers is None else layers[number].tolist(),
            judged=_judged(verdicts[number]) if verdicts else None,
        )
        for number, request in enumerate(requests)
    ]
    return PresetRow(
        preset=preset, precision=precision, outcome="OK", message=None, figures=figures, pictures=pictures
    )


def _judged(verdict: ImageScore) -> dict[str, str | None]:
    return {"emoji": verdict.emoji, "style": verdict.style, "background": verdict.background}


def _write(record: CompareRecord, one: _Comparison) -> None:
    out, knobs = one.plan.out, one.requests[0]
    failed = [row.preset for row in record.presets if row.figures is None]
    words = [f"reference: {record.reference.preset} in {record.reference.precision}", record.model.reference]
    words += [f"{knobs.steps} steps", f"cfg {knobs.cfg}", knobs.sampler, record.device]
    words += [f"not here because they failed: {', '.join(failed)}"] if failed else []
    with atomic_write(out / SHEET) as file:
        sheet(one.columns, one.requests, " · ".join(words)).save(file, "PNG")
    with atomic_write(out / SUMMARY, "w") as file:
        file.write(summary(record, SHEET))
    with atomic_write(out / RECORD, "w") as file:
        file.write(record.model_dump_json(indent=1) + "\n")
