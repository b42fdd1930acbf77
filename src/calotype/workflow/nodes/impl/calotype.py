"""Calotype's own nodes: presets chosen and compared, pictures on one sheet."""

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
from calotype.workflow.nodes.impl.sampling import Asked, sampled
from calotype.workflow.nodes.impl.tensor_image import pixels_of, to_pictures
from calotype.workflow.nodes.impl.vae import decode
from calotype.workflow.nodes.value_types import ModelValue, VaeValue


def with_preset(_context: Context, model: ModelValue, preset: str) -> tuple[ModelValue]:
    return (replace(model, preset=preset),)


def sheet(_context: Context, images: Tensor, columns: int, labels: str, caption: str) -> tuple[Tensor]:
    """Pictures in rows, each column or picture with a label where there are any."""
    pictures = to_pictures(images)
    columns = min(columns, len(pictures)) if columns else len(pictures)
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    names = [line.strip() for line in labels.splitlines() if line.strip()]
    across = tuple((names + [""] * columns)[:columns])
    return (pixels_of(contact_sheet(rows, Axis("", across), None, caption)),)


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
    """The same sampling by each preset; the sheet says how far each one's pictures are off the first's."""
    names = _names(presets, context.catalogue.presets())
    made: list[Tensor] = []
    labels: list[str] = []
    times: list[str] = []
    asked = Asked(
        model, seed, steps, cfg, sampler_name, scheduler, positive, negative, latent_image, denoise=denoise
    )
    for turn, name in enumerate(names):
        chosen = replace(model, preset=name)
        # Loading is not what is compared.
        context.models.for_unet(chosen)
        started, waited = perf_counter(), 0.0
        work = sampled(context.models, replace(asked, model=chosen))
        while True:
            try:
                step = next(work)
            except StopIteration as finished:
                (latent,) = finished.value
                break
            # What the host does between two steps is not the preset's time.
            left = perf_counter()
            yield Step(turn * step.maximum + step.value, len(names) * step.maximum, step.preview)
            waited += perf_counter() - left
        times.append(f"{name}: {perf_counter() - started - waited:.2f} s")
        (images,) = yield from decode(context, latent, vae)
        made.append(images)
        labels.append(f"{name}, {_distance(images, made[0])}")
    rows = [to_pictures(images) for images in made]
    # Times are told beside the sheet: the same graph makes the same pictures.
    return Result((torch.cat(made), pixels_of(_sheet(rows, labels, asked))), {"text": times})


def _names(presets: str, known: Sequence[str]) -> list[str]:
    names = [name.strip() for name in presets.replace("\n", ",").split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f"{unknown[0]!r} is not there" if unknown else "names no preset"
        raise RequestError([Problem("presets", f"{wrong}; there are {', '.join(known)}", presets[:200])])
    return names


def _distance(images: Tensor, first: Tensor) -> str:
    if images is first:
        return "the measure"
    return f"off by {float((images - first).abs().mean() * 255):.2f}/255"


def _sheet(rows: Sequence[Sequence[Image.Image]], labels: Sequence[str], asked: Asked) -> Image.Image:
    seeds = Axis("picture", tuple(range(1, len(rows[0]) + 1)))
    caption = f"{asked.sampler} {asked.schedule}, {asked.steps} steps, cfg {asked.cfg}, seed {asked.seed}"
    return contact_sheet(rows, seeds, Axis("preset", tuple(labels)), caption)
