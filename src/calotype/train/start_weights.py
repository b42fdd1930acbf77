"""Check that a recipe states which weights its training starts from, and record them in exported files."""

from __future__ import annotations

from calotype.core.errors import Problem, RequestError
from calotype.spec.constants import RANDOM_MODEL
from calotype.spec.recipe import Recipe
from calotype.spec.recipe_sections import PRECOMPUTED_FORMATS, SYNTHETIC_KINDS
from calotype.spec.records.image import ModelIdentity

_FINE_TUNING = {
    "lora": "a LoRA",
    "textual_inversion": "a word",
    "unet_and_text": "the text encoders",
}


def check_weights_are_chosen(recipe: Recipe) -> None:
    """Refuse training that would start from random weights because the recipe does not choose any."""
    if is_chosen(recipe) or (reason := _reason_to_choose(recipe)) is None:
        return
    _refuse(recipe, f"{reason}; ")


def check_encoders_are_chosen(recipe: Recipe) -> None:
    """Refuse to precompute with randomly initialized encoders that the recipe does not ask for."""
    if not is_chosen(recipe):
        _refuse(recipe, "random encoders would produce meaningless latents and embeddings; ")


def is_chosen(recipe: Recipe) -> bool:
    """Whether a recipe file or an override sets `model.weights`, or `model.base` names a random model."""
    return "weights" in recipe.model.model_fields_set or recipe.model.base.startswith(RANDOM_MODEL)


def random_weights_note(recipe: Recipe) -> str:
    """The warning for a run that starts from random weights."""
    frozen = {
        "lora": "the model beside the LoRA too, so that it fits no other model",
        "textual_inversion": "the model beside the word too, so that it fits no other model",
    }.get(recipe.model.train)
    if frozen is None:
        frozen = "all parts" if recipe.model.vae is None else "all parts but model.vae"
    return (
        f"model.weights=random: {recipe.model.base} starts from random numbers (trainer.seed="
        f"{recipe.trainer.seed}), {frozen}; set model.weights=pretrained to start from its weights"
    )


def weights_metadata(recipe: Recipe, identity: ModelIdentity) -> dict[str, str]:
    """Metadata for the header of an exported file: the weights that the training started from."""
    return {
        "calotype.base": identity.reference,
        "calotype.base_weights": "random" if identity.random else recipe.model.weights,
        "calotype.base_sha256": identity.sha256,
    }


def _reason_to_choose(recipe: Recipe) -> str | None:
    kind, data = recipe.model.train, recipe.data.kind
    if kind in _FINE_TUNING:
        return f"training {_FINE_TUNING[kind]} on random weights produces nothing useful"
    if data in SYNTHETIC_KINDS or (kind == "unet" and data in PRECOMPUTED_FORMATS):
        return None
    if kind == "vae":
        return "an autoencoder should start from random weights only on purpose"
    return f"data.kind={data} would be encoded by an autoencoder and text encoders with random weights"


def _refuse(recipe: Recipe, reason: str) -> None:
    base = recipe.model.base
    fix = (
        f"set model.weights=pretrained for the weights of model.base={base} (a catalog name, hub id, folder "
        f"or file: model.base=/path/to/model.safetensors), or model.weights=random to use random weights"
    )
    raise RequestError([Problem("model.weights", f"is not set, and {reason}{fix}")])
