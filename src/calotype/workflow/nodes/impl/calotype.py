"""Implements Calotype's own nodes: preset selection and comparison, contact sheets."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from time import perf_counter

import torch
from PIL import Image
from torch import Tensor

from calotype.core.errors import Problem, RequestError
from calotype.imaging.contact_sheet import Axis, contact_sheet
from calotype.workflow.node_api import Context, Result, Step
from calotype.workflow.nodes.impl.conditioning_masks import Pairs
from calotype.workflow.nodes.impl.latents import Latent
from calotype.workflow.nodes.impl.sampling import SamplingParams, sampled
from calotype.workflow.nodes.impl.tensor_image import pixels_of, to_pictures
from calotype.workflow.nodes.impl.vae import decode
from calotype.workflow.nodes.value_types import ModelValue, VaeValue


def with_preset(_context: Context, model: ModelValue, preset: str) -> tuple[ModelValue]:
    return (replace(model, preset=preset),)


def sheet(_context: Context, images: Tensor, columns: int, labels: str, caption: str) -> tuple[Tensor]:
    """Arrange images in rows, with labels for columns or images if there are any."""
    pictures = to_pictures(images)
    columns = min(columns, len(pictures)) if columns else len(pictures)
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    names = [line.strip() for line in labels.splitlines() if line.strip()]
    column_labels = tuple((names + [""] * columns)[:columns])
    return (pixels_of(contact_sheet(rows, Axis("", column_labels), None, caption)),)


def compared(
    context: Context,
    model: ModelValue,
    presets: str,
    seed: int,
    steps: int,
    cfg: float,
    sampler_name: str,
    scheduler: str,
    positive: Pairs,
    negative: Pairs,
    latent_image: Latent,
    vae: VaeValue,
    denoise: float = 1.0,
) -> Generator[Step, None, Result]:
    """Run the same sampling with each preset; the sheet shows each preset's distance from the first."""
    names = _names(presets, context.catalogue.presets())
    batches: list[Tensor] = []
    labels: list[str] = []
    times: list[str] = []
    params = SamplingParams(
        model, seed, steps, cfg, sampler_name, scheduler, positive, negative, latent_image, denoise=denoise
    )
    for index, name in enumerate(names):
        preset_model = replace(model, preset=name)
        # Load first, so that the time of loading is not compared.
        context.models.for_unet(preset_model)
        started, waited = perf_counter(), 0.0
        work = sampled(context.models, replace(params, model=preset_model))
        while True:
            try:
                step = next(work)
            except StopIteration as finished:
                (latent,) = finished.value
                break
            # Exclude the host's time between two steps.
            yielded = perf_counter()
            yield Step(index * step.maximum + step.value, len(names) * step.maximum, step.preview)
            waited += perf_counter() - yielded
        times.append(f"{name}: {perf_counter() - started - waited:.2f} s")
        (images,) = yield from decode(context, latent, vae)
        batches.append(images)
        labels.append(f"{name}, {_distance(images, batches[0])}")
    rows = [to_pictures(images) for images in batches]
    # Times are not on the sheet, because the same graph must give the same images.
    return Result((torch.cat(batches), pixels_of(_sheet(rows, labels, params))), {"text": times})


def _names(presets: str, known: Sequence[str]) -> list[str]:
    names = [name.strip() for name in presets.replace("\n", ",").split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f"{unknown[0]!r} does not exist" if unknown else "names no preset"
        raise RequestError([Problem("presets", f"{wrong}; use {', '.join(known)}", presets[:200])])
    return names


def _distance(images: Tensor, first: Tensor) -> str:
    if images is first:
        return "reference"
    return f"difference {float((images - first).abs().mean() * 255):.2f}/255"


def _sheet(
    rows: Sequence[Sequence[Image.Image]], labels: Sequence[str], params: SamplingParams
) -> Image.Image:
    seeds = Axis("image", tuple(range(1, len(rows[0]) + 1)))
    caption = (
        f"{params.sampler} {params.schedule}, {params.steps} steps, cfg {params.cfg}, seed {params.seed}"
    )
    return contact_sheet(rows, seeds, Axis("preset", tuple(labels)), caption)
