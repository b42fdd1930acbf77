"""Build the objects of a recipe: the model in the right dtypes, the task, and the training data loader."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import models_dir, resolve_inside
from calotype.core.progress import Progress
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.model import Model, load_model, vae_dtype
from calotype.models.resolve import RANDOM, ResolvedModel, random_model, resolve_model
from calotype.models.vae_override import override_vae, vae_sha256
from calotype.spec.recipe import Recipe
from calotype.train.data.dataloader import DataLoader, build_dataloader
from calotype.train.data.requirements import DataRequirements
from calotype.train.distributed.process_group import Rank
from calotype.train.encode import image_moments
from calotype.train.tasks.base import DTYPES, TrainTask, UNetTask
from calotype.train.tasks.lora import LoraTask
from calotype.train.tasks.text_encoders import TextAndUNetTask
from calotype.train.tasks.textual_inversion import TextualInversionTask
from calotype.train.tasks.vae import VaeTask

SUBJECTS: dict[str, Callable[[Model, Recipe], TrainTask]] = {
    "unet": UNetTask,
    "unet_and_text": TextAndUNetTask,
    "lora": LoraTask,
    "textual_inversion": TextualInversionTask,
    "vae": VaeTask,
}


def load_training_model(
    recipe: Recipe, device: torch.device, progress: Progress | None = None, models: Path | None = None
) -> Model:
    """The model, with trained parts in fp32 (unless the recipe says otherwise), the rest in the run's dtype.

    An autoencoder's training leaves the UNet in its dtype, because the UNet is not used.
    """
    resolved = _resolve_base_model(recipe, models)
    vae = _vae_path(recipe, models)
    with (
        resolved.weights as base_weights,
        override_vae(base_weights, vae) if vae else nullcontext(base_weights) as weights,
    ):
        model = load_model(weights, resolved.identity, dtype=torch.float32, device=device, progress=progress)
    model.vae_sha256 = vae_sha256(vae) if vae else None
    # Sampling and export read from the architecture what the network was trained to predict.
    model.architecture = _architecture_after_training(model.architecture, recipe)
    dtype = DTYPES[recipe.model.precision]
    trained = [model.vae if recipe.model.train == "vae" else model.unet]
    if recipe.model.train == "unet_and_text":
        trained += model.text_encoders
    for part in (model.vae, *model.text_encoders):
        if part not in trained:
            _cast(part, vae_dtype(model.architecture, dtype) if part is model.vae else dtype)
    if recipe.model.low_precision_weights:
        for part in trained:
            _cast(part, dtype)
    return model


def _resolve_base_model(recipe: Recipe, models: Path | None) -> ResolvedModel:
    part = recipe.model
    if part.weights == "pretrained" or (part.base.startswith(RANDOM) and part.width == 1):
        return resolve_model(part.base, models=models)
    if part.base not in catalogue.names():
        rule = f"random needs a catalog name in model.base, which is {part.base!r}"
        raise RequestError([Problem("model.weights", f"{rule}; use pretrained to start from its weights")])
    architecture = catalogue.architecture(part.base).widened(part.width)
    return random_model(f"{RANDOM}{part.base}:{recipe.trainer.seed}", architecture, recipe.trainer.seed)


def _architecture_after_training(architecture: Architecture, recipe: Recipe) -> Architecture:
    """The architecture after the training that the recipe describes."""
    wanted, base_weights = recipe.objective.prediction_type, architecture.prediction_type
    if wanted not in (None, base_weights) and recipe.model.train not in ("unet", "unet_and_text"):
        rule = (
            f"{wanted!r} cannot be learned by a {recipe.model.train} run: the model predicts {base_weights!r}"
        )
        raise RequestError([Problem("objective.prediction_type", f"{rule}, which stays; remove the setting")])
    return architecture.predicting(wanted)


def _vae_path(recipe: Recipe, models: Path | None) -> Path | None:
    """The path of the recipe's separate autoencoder: a path, or a name in the model folder."""
    name = recipe.model.vae
    if name is None:
        return None
    path = Path(name).expanduser()
    return (
        path if path.exists() else resolve_inside((models or models_dir()) / "vae", name, field="model.vae")
    )


def _cast(module: nn.Module, dtype: torch.dtype) -> None:
    # diffusers' own `to` warns about casts that are intended here.
    nn.Module.to(module, dtype)


def build_task(model: Model, recipe: Recipe) -> TrainTask:
    """The task that the recipe's `model.train` names."""
    return SUBJECTS[recipe.model.train](model, recipe)


def requirements_of(model: Model, recipe: Recipe) -> DataRequirements:
    """The shapes and hashes that training data must match for this model."""
    made_by = model.identity.sha256
    needs = _needs(model.architecture, recipe, model.device)
    return replace(needs, vae_hash=model.vae_sha256 or made_by, text_hash=made_by)


def requirements_before_loading(recipe: Recipe, models: Path | None = None) -> DataRequirements:
    """The same for code that only reads the data: on the CPU, without the hashes of the model."""
    with _resolve_base_model(recipe, models).weights as weights:
        return _needs(weights.architecture, recipe, torch.device("cpu"))


def _needs(architecture: Architecture, recipe: Recipe, device: torch.device) -> DataRequirements:
    projected = [c for c in architecture.text_encoders if c["_class_name"].endswith("WithProjection")]
    return DataRequirements(
        resolution=recipe.model.resolution or architecture.native_size,
        latent_channels=architecture.latent_channels,
        vae_factor=architecture.vae_factor,
        context_tokens=int(architecture.text_encoders[0]["max_position_embeddings"]),
        context_width=int(architecture.unet["cross_attention_dim"]),
        pooled_width=int(projected[0]["projection_dim"]) if projected else None,
        device=device,
    )


def build_training_dataloader(
    model: Model, recipe: Recipe, process: Rank, *, samples_seen: int = 0, progress: Progress | None = None
) -> DataLoader:
    """This rank's share of the training data."""
    return build_dataloader(
        recipe.data,
        requirements_of(model, recipe),
        rank=process.rank,
        world_size=process.world_size,
        micro_batch_size=recipe.model.micro_batch_size,
        samples_seen=samples_seen,
        encode=partial(image_moments, model),
        progress=progress,
    )
