"""Compares presets with a reference on the same prompts and seeds, loading one after the other.

A failed preset becomes a row with the error, and the others continue. Files are written after all
measurements, the record last.
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
    """Loads the engine of the compared model."""

    def __call__(self, *, preset: str, precision: str) -> Engine: ...


@dataclass(frozen=True)
class ComparePlan:
    """The presets, the requests and the output folder of a comparison."""

    command: str
    """The command line that repeats the comparison."""
    out: Path
    device: torch.device
    reference: Candidate
    candidates: Sequence[Candidate]
    requests: Sequence[GenerateRequest]
    """One for each prompt, otherwise equal."""

    def __post_init__(self) -> None:
        problems = []
        if not self.requests:
            problems.append(Problem("prompt", "is missing; give a prompt or --prompts FILE"))
        if (self.out / RECORD).exists():
            rule = f"{self.out} already contains results; choose another folder or remove it"
            problems.append(Problem("--out", rule, str(self.out)))
        if problems:
            raise RequestError(problems)

    def pictures(self) -> list[GenerateRequest]:
        """Return one request for each image."""
        return [
            request.with_changes(seed=seed, count=1) for request in self.requests for seed in request.seeds()
        ]


@dataclass(frozen=True)
class _Reference:
    """The reference images, and the scores against them."""

    pixels: Tensor
    scores: ClassifierScores | None


class _Comparison:
    """The shared state of one comparison."""

    def __init__(self, load: Load, plan: ComparePlan, progress: Progress, cancel: CancelToken) -> None:
        self.load, self.plan, self.progress, self.cancel = load, plan, progress, cancel
        self.requests = plan.pictures()
        self.columns: dict[str, list[Image.Image]] = {}

    def engine(self, candidate: Candidate) -> Engine:
        free(self.plan.device)
        return self.load(preset=candidate.preset, precision=self.precision(candidate))

    def precision(self, candidate: Candidate) -> str:
        return precision_name(choose_dtype(candidate.precision, self.plan.device))

    def generate(self, engine: Engine, label: str) -> GeneratedImages:
        generated = generate_images(engine, self.requests, label, self.progress, self.cancel)
        self.columns[label] = thumbnails(generated.images)
        return generated

    def row(self, candidate: Candidate, baseline: _Reference) -> PresetRow:
        """Measure a preset; a failure gives a row with its reason."""
        precision = self.precision(candidate)
        try:
            generated = self.generate(self.engine(candidate), self._label(candidate))
        except CancelledError:
            raise
        # A failing preset must not stop the comparison of the others.
        except Exception as error:
            return PresetRow(
                preset=candidate.preset,
                precision=precision,
                outcome=_outcome(error),
                message=_message(error),
                figures=None,
                pictures=[],
            )
        return _measured(candidate.preset, precision, generated, self.requests, baseline)

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
    """Compare presets and write the results.

    Without a `recogniser`, the shipped classifier scores emoji models.
    """
    one = _Comparison(load, plan, progress or Silent(), cancel or CancelToken())
    engine = one.engine(plan.reference)
    # By default torch lets convolutions use TF32, which rounds fp32 to a 10-bit mantissa.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        generated = one.generate(engine, "reference")
    classifier = recogniser or classifier_for(engine.model)
    identity, pixels = engine.model.identity, generated.pixels()
    # It would stay in memory beside the engines of the presets.
    del engine
    prompts = [request.prompt for request in one.requests]
    baseline = _Reference(pixels, ClassifierScores(classifier, prompts, pixels) if classifier else None)
    reference = _measured(
        plan.reference.preset,
        one.precision(plan.reference),
        generated,
        one.requests,
        baseline,
        is_reference=True,
    )
    record = CompareRecord(
        command=plan.command,
        model=identity,
        device=device_name(plan.device),
        request=plan.requests[0].model_dump(mode="json", exclude={"prompt"}),
        reference=reference,
        presets=[one.row(candidate, baseline) for candidate in plan.candidates],
        recogniser_sha256=classifier.record.weights_sha256 if classifier else None,
        fingerprint=full_fingerprint().as_dict(),
    )
    _write(record, one)
    return record


def _outcome(error: Exception) -> Outcome:
    if isinstance(error, DoesNotFitError | MemoryError) or is_out_of_memory(error):
        return "OOM"
    return "cannot run" if isinstance(error, NotFoundError) else "Error!"


def _message(error: Exception) -> str:
    """Format an error as one line, with its type if the message alone may be unclear."""
    words = " ".join(str(error).split())
    return words if isinstance(error, NotFoundError | DoesNotFitError) else f"{type(error).__name__}: {words}"


def _measured(
    preset: str,
    precision: str,
    generated: GeneratedImages,
    requests: Sequence[GenerateRequest],
    baseline: _Reference,
    *,
    is_reference: bool = False,
) -> PresetRow:
    pixels, scores = generated.pixels(), baseline.scores
    verdicts = scores.verdicts(pixels) if scores else None
    noise = None if is_reference else image_metrics.psnr(pixels, baseline.pixels)
    similarity = None if is_reference else image_metrics.ssim(pixels, baseline.pixels)
    layers = scores.distances(pixels) if scores and not is_reference else None
    sizes, device_s = (
        generated.png_bytes(),
        [duration.device for duration in generated.seconds if duration.device is not None],
    )
    figures = Figures(
        weights_bytes=generated.weights_bytes,
        resident_bytes=generated.resident_bytes,
        peak_bytes=generated.peak_bytes,
        wall_s=image_metrics.spread(torch.tensor([duration.wall for duration in generated.seconds])),
        device_s=image_metrics.spread(torch.tensor(device_s)) if device_s else None,
        png_bytes=image_metrics.spread(torch.tensor(sizes)),
        likeness=None
        if noise is None or similarity is None
        else image_metrics.comparison(preset, noise, similarity),
        feature_distance=None if layers is None else image_metrics.spread(layers.mean(1)),
        recognised=scores.recognised(verdicts) if scores and verdicts else None,
        agreeing=scores.agreeing(verdicts) if scores and verdicts and not is_reference else None,
    )
    pictures = [
        PictureCompared(
            prompt=request.prompt,
            seed=request.seed,
            wall_s=generated.seconds[number].wall,
            device_s=generated.seconds[number].device,
            png_bytes=sizes[number],
            psnr_db=None if noise is None else float(noise[number]),
            ssim=None if similarity is None else float(similarity[number]),
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
    caption = [
        f"reference: {record.reference.preset} in {record.reference.precision}",
        record.model.reference,
    ]
    caption += [f"{knobs.steps} steps", f"cfg {knobs.cfg}", knobs.sampler, record.device]
    caption += [f"failed and not shown: {', '.join(failed)}"] if failed else []
    with atomic_write(out / SHEET) as file:
        sheet(one.columns, one.requests, " · ".join(caption)).save(file, "PNG")
    with atomic_write(out / SUMMARY, "w") as file:
        file.write(summary(record, SHEET))
    with atomic_write(out / RECORD, "w") as file:
        file.write(record.model_dump_json(indent=1) + "\n")
