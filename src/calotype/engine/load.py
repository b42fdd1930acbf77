"""Loads a model and builds an engine of it: the entry point of command line, server and Python code."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from calotype.core.progress import Progress
from calotype.engine.artifacts.cache_key import cache_key_of
from calotype.engine.artifacts.lookup import use_artifacts
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.device import choose_device, choose_dtype, pack_memory
from calotype.engine.engine import Engine
from calotype.engine.kernels.triton_warmup import prepare_triton
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.engine.passes.native_vae_decoder import NATIVE_VAE_DECODER
from calotype.engine.passes.text_encoder_offload import TEXT_ENCODER_OFFLOAD
from calotype.engine.presets import pass_names, reason_against
from calotype.models.model import Model, load_model
from calotype.models.resolve import resolve_model
from calotype.models.weights import Weights
from calotype.spec.constants import DEFAULT_PRESET
from calotype.spec.records.image import ModelIdentity

_log = logging.getLogger(__name__)


def load(
    model: str = "emoji",
    *,
    device: str | None = None,
    precision: str | None = None,
    preset: str | None = None,
    models_folder: Path | str | None = None,
    config: Path | None = None,
    prediction_type: str | None = None,
    shapes: Sequence[Shape] = (),
    warm: bool = False,
    outlined: bool = True,
    progress: Progress | None = None,
) -> Engine:
    """Load a model and build an engine of it, with the artifacts that `calotype engine build` prepared.

    `model` is a catalogue name, a file, a folder, a name in the model folder, a hub id, or `random:NAME`.
    Without a preset it is `fast`, or `baseline` for a model with an unusual architecture. `shapes` are the
    expected shapes. `warm` runs them, or all shapes of the prepared artifacts if there are none, so that the
    first request is as fast as later ones. Without `outlined` the model's modules are diffusers' and
    transformers' own with any preset, for callers that pass them on.
    """
    folder = None if models_folder is None else Path(models_folder)
    chosen = choose_device(device)
    dtype = choose_dtype(precision, chosen)
    found = resolve_model(model, models=folder, config=config, prediction_type=prediction_type)
    prepare_triton(chosen)
    with found.weights as weights:
        make = partial(
            load_model_for_preset,
            weights=weights,
            identity=found.identity,
            dtype=dtype,
            device=chosen,
            outlined=outlined,
            progress=progress,
        )
        live = make(preset or DEFAULT_PRESET)
        if preset is None and (reason := reason_against(live, DEFAULT_PRESET)):
            _log.info("preset: baseline, as %s is not for this model: %s", DEFAULT_PRESET, reason)
            # Freed before the second load: a device may not have memory for two models.
            del live
            if chosen.type == "cuda":
                torch.cuda.empty_cache()
            preset, live = "baseline", make("baseline")
    return build_engine(
        live,
        preset=preset or DEFAULT_PRESET,
        models_folder=folder,
        shapes=shapes,
        warm=warm,
        progress=progress,
    )


def build_engine(
    live: Model,
    *,
    preset: str,
    models_folder: Path | None = None,
    shapes: Sequence[Shape] = (),
    warm: bool = False,
    progress: Progress | None = None,
) -> Engine:
    """Build the engine of a loaded model, with its prepared artifacts."""
    target = cache_key_of(
        live.architecture, preset=preset, shapes=shapes, dtype=live.dtype, device=live.device
    )
    prepared = use_artifacts(target)
    engine = Engine(live, preset=preset, models_folder=models_folder, compiled=prepared.regions)
    if warm:
        engine.warm_up(shapes or prepared.shapes, progress)
    return engine


def load_model_for_preset(
    preset: str,
    weights: Weights,
    identity: ModelIdentity,
    *,
    dtype: torch.dtype,
    device: torch.device,
    outlined: bool = True,
    progress: Progress | None = None,
) -> Model:
    """Load a model directly onto the devices that its preset uses."""
    text_device, passes = None, pass_names(preset, device.type)
    if TEXT_ENCODER_OFFLOAD.name in passes:
        pack_memory(device)
        text_device = torch.device("cpu")
    return load_model(
        weights,
        identity,
        dtype=dtype,
        device=device,
        text_device=text_device,
        # If both forward passes are native, importing the libraries' modules would be wasted time.
        outlined=outlined and {NATIVE_UNET.name, NATIVE_VAE_DECODER.name}.issubset(passes),
        progress=progress,
    )
