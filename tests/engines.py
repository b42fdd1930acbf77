"""Engines on shrunk models, and the ways tests run them. Knows nothing of any test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from calotype.engine.engine import Engine
from calotype.engine.image_inputs import load_image_inputs
from calotype.engine.load import load_model_for_preset
from calotype.engine.sampling_run import SamplingRun
from calotype.models.architecture import Architecture
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights
from calotype.spec.generate_request import GenerateRequest
from tests.small_models import shrunk


def small_engine(
    name: str = "emoji",
    *,
    dtype: torch.dtype = torch.float32,
    models_folder: Path | None = None,
    architecture: Architecture | None = None,
    preset: str = "baseline",
) -> Engine:
    """An engine on the shrunk model `name`, or on an architecture made from one."""
    chosen = architecture or shrunk(name)
    model = load_model_for_preset(
        preset,
        RandomWeights(chosen),
        random_identity(f"random:{name}", chosen, 0),
        dtype=dtype,
        device=torch.device("cpu"),
    )
    return Engine(model, preset=preset, models_folder=models_folder or Path("/nonexistent"))


def with_unet(architecture: Architecture, **changes: Any) -> Architecture:
    """The same architecture with another UNet configuration."""
    return replace(architecture, unet={**architecture.unet, **changes})


def with_scheduler(architecture: Architecture, **changes: Any) -> Architecture:
    """The same architecture with another scheduler configuration."""
    return replace(architecture, scheduler={**architecture.scheduler, **changes})


def begun(
    engine: Engine,
    knobs: Mapping[str, Any],
    seeds: Sequence[int] | None = None,
    *,
    image: Image.Image | None = None,
    mask: Image.Image | None = None,
) -> tuple[SamplingRun, GenerateRequest]:
    """A run of a request given by its knobs, not yet advanced."""
    asked, inputs = load_image_inputs({"prompt": "a red apple", **knobs}, image, mask)
    request = engine.resolve_defaults(asked, inputs)
    return engine.begin(request, inputs, request.seeds() if seeds is None else seeds), request


def to_the_end(engine: Engine, run: SamplingRun) -> Tensor:
    """The final latents of a run advanced alone."""
    while not run.done:
        engine.step([run])
    assert run.latents is not None
    return run.latents


def latents_of(engine: Engine, seeds: Sequence[int] | None = None, **knobs: Any) -> Tensor:
    """The final latents of a request given by its knobs."""
    return to_the_end(engine, begun(engine, knobs, seeds)[0])


def difference(one: Image.Image, other: Image.Image) -> int:
    """The largest difference of any pixel, in steps of 1/255."""
    assert one.size == other.size
    return int(np.abs(np.asarray(one, dtype=np.int16) - np.asarray(other, dtype=np.int16)).max())


def mean_difference(one: Image.Image, other: Image.Image) -> float:
    """The mean difference over all pixels, in steps of 1/255."""
    return float(np.abs(np.asarray(one, dtype=np.int16) - np.asarray(other, dtype=np.int16)).mean())


def relative(one: Tensor, other: Tensor) -> float:
    """How far one tensor is from the other, as a share of the other's size."""
    return float((one - other).norm() / other.norm())
