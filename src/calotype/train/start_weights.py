"""Whether a recipe says which weights its training starts from, and how output files record them."""

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
    """Refuse training that would start from random numbers because nothing sets the weights."""
    if is_chosen(recipe) or (reason := _reason_to_choose(recipe)) is None:
        return
    _refuse(recipe, f"{reason}; ")


def check_encoders_are_chosen(recipe: Recipe) -> None:
    """Refuse to precompute with an autoencoder and text encoders of random numbers that no setting names."""
    if not is_chosen(recipe):
        _refuse(recipe, "random encoders would make latents and embeddings that mean nothing; ")


def is_chosen(recipe: Recipe) -> bool:
    """Whether a recipe file or an override sets `model.weights`, or `model.base` names random numbers."""
    return "weights" in recipe.model.model_fields_set or recipe.model.base.startswith(RANDOM_MODEL)


def random_weights_note(recipe: Recipe) -> str:
    """One line to show where a run starts from random numbers."""
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
    """For the header of an exported file: which weights the training started from."""
    return {
        "calotype.base": identity.reference,
        "calotype.base_weights": "random" if identity.random else recipe.model.weights,
        "calotype.base_sha256": identity.sha256,
    }


def _reason_to_choose(recipe: Recipe) -> str | None:
    kind, data = recipe.model.train, recipe.data.kind
    if kind in _FINE_TUNING:
        return f"training {_FINE_TUNING[kind]} on random numbers makes nothing of use"
    if data in SYNTHETIC_KINDS or (kind == "unet" and data in PRECOMPUTED_FORMATS):
        return None
    if kind == "vae":
        return "an autoencoder of random numbers is trained from scratch only on purpose"
    return f"data.kind={data} would be encoded by an autoencoder and text encoders of random numbers"


def _refuse(recipe: Recipe, reason: str) -> None:
    base = recipe.model.base
    fix = (
        f"set model.weights=pretrained for the weights of model.base={base} (a catalog name, hub id, folder "
        f"or file: model.base=/path/to/model.safetensors), or model.weights=random to use random numbers"
    )
    raise RequestError([Problem("model.weights", f"is not set, and {reason}{fix}")])
