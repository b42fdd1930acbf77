"""Export a run's trained weights for other programs: a model, a LoRA, an embedding or an autoencoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.engine.device import choose_dtype
from calotype.models.architecture import Architecture, published_name
from calotype.models.model import Model
from calotype.models.save import (
    SINGLE_FILE_SUFFIXES,
    refuse_existing,
    write_folder,
    write_single_file,
    write_vae_folder,
)
from calotype.models.weights import NamedTensors, TensorSpec
from calotype.spec.recipe import Recipe
from calotype.train.builders import build_task, load_training_model
from calotype.train.checkpoint import CheckpointManager
from calotype.train.checkpoint.compatibility import refuse_other
from calotype.train.latent_scale import latent_deviation
from calotype.train.start_weights import check_weights_are_chosen, weights_metadata
from calotype.train.tasks.lora import LoraTask
from calotype.train.tasks.text_encoders import by_part
from calotype.train.tasks.textual_inversion import TextualInversionTask
from calotype.train.tasks.vae import VaeTask
from calotype.train.train import run_folder

SAMPLES_FOR_SCALE = 1024

_log = logging.getLogger(__name__)


class LiveWeights:
    """The tensors of a loaded model, some of them replaced."""

    def __init__(self, model: Model, learned: Mapping[str, Mapping[str, Tensor]]) -> None:
        """`learned` holds the replacement tensors by part and name."""
        self.architecture: Architecture = model.architecture
        self._states: dict[str, dict[str, Tensor]] = {
            part: {
                published_name(name, part): tensor
                for name, tensor in {**module.state_dict(), **learned.get(part, {})}.items()
            }
            for part, module in model.parts().items()
        }

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return {name: TensorSpec(t.dtype, tuple(t.shape)) for name, t in self._states[part].items()}

    def read(self, part: str, name: str) -> Tensor:
        return self._states[part][name].cpu()

    def extra(self) -> NamedTensors | None:
        return None


def export(
    recipe: Recipe,
    destination: Path,
    *,
    dtype: str = "fp16",
    live: bool = False,
    best: bool = False,
    models: Path | None = None,
    device: torch.device | None = None,
    samples: int = SAMPLES_FOR_SCALE,
) -> int:
    """Write the newest (or best) checkpoint's averaged (or live) weights; returns the step of the checkpoint.

    An autoencoder's scale is measured on `device` over `samples` samples of the run's data.
    """
    refuse_existing(destination)
    check_weights_are_chosen(recipe)
    _check_suffix(recipe, destination)
    with CheckpointManager(run_folder(recipe) / "checkpoints", recipe.checkpoint.keep_last) as store:
        path = store.best() if best else store.newest()
        if path is None:
            which = "no checkpoint with a metric" if best else "no checkpoint"
            raise NotFoundError(f"{which} in {run_folder(recipe)}; run the recipe first")
        state, _ = store.load(path, 0)
    names = sorted(state["parameters"])
    tensors = dict(state["parameters"])
    if state["ema"] and not live:
        tensors = dict(zip(names, state["ema"]["averages"], strict=True))
    # Untrained parts are exported unchanged rather than rounded to the run's precision.
    full_precision = recipe.model.model_copy(update={"precision": "fp32", "low_precision_weights": False})
    cpu = torch.device("cpu")
    model_device = device if device and recipe.model.train == "vae" else cpu
    model = load_training_model(
        recipe.model_copy(update={"model": full_precision}), model_device, models=models
    )
    task = build_task(model, recipe)
    refuse_other(state, task.parameters(), model, recipe, with_moments=False)
    metadata = weights_metadata(recipe, model.identity)
    if isinstance(task, LoraTask | TextualInversionTask):
        task.export(destination, tensors, metadata)
    elif isinstance(task, VaeTask):
        _set_scaling_factor(model, recipe, tensors, samples)
        weights = LiveWeights(model, {"vae": tensors})
        write_vae_folder(weights, destination, dtype=choose_dtype(dtype, cpu), metadata=metadata)
    else:
        write = write_single_file if destination.suffix in SINGLE_FILE_SUFFIXES else write_folder
        whole_model = LiveWeights(model, by_part(tensors))
        write(whole_model, destination, dtype=choose_dtype(dtype, cpu), metadata=metadata)
    return int(state["step"])


def _check_suffix(recipe: Recipe, destination: Path) -> None:
    """Check the file suffix: .safetensors means one file, which some runs require and others cannot write."""
    kind, is_file = recipe.model.train, destination.suffix == ".safetensors"
    rule = None
    if kind in ("lora", "textual_inversion") and not is_file:
        rule = f"{destination} should end in .safetensors: a {kind} run exports one file"
    if kind == "vae" and is_file:
        rule = f"{destination} should be a folder: an autoencoder's scale is in a file beside its weights"
    if rule:
        raise RequestError([Problem("destination", rule, str(destination))])


def _set_scaling_factor(model: Model, recipe: Recipe, learned: Mapping[str, Tensor], samples: int) -> None:
    """Set the autoencoder's scaling factor so that latents have the standard deviation of noise."""
    model.vae.load_state_dict(learned, strict=True)
    deviation = latent_deviation(model, recipe, samples)
    # No shift: pipelines of these models do not apply one when they decode.
    vae_config = {**model.architecture.vae, "scaling_factor": 1 / deviation, "shift_factor": None}
    model.architecture = replace(model.architecture, vae=vae_config)
    _log.info(
        "scaling_factor %.5f: the data's latents have standard deviation %.5f", 1 / deviation, deviation
    )
