"""What a run was begun with, so that going on with it, or exporting it, cannot mix two things.

The same names and numbers mean something else beside another model, in another prediction or under another
alpha, and nothing would look wrong until the pictures do. What may change while a run goes on (learning rate,
batches, precision, processes) is no part of it. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from calotype.core.errors import Problem, RequestError
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.tasks.lora import alpha_of

_SHOWN_OF_DIGEST = 12
_WEIGHTS = "weights of model.base"
_OPTIMIZER = "optimizer.name"


def origin_of(model: Model, recipe: Recipe) -> dict[str, Any]:
    """By the name a user knows it under; plain values, for a checkpoint."""
    origin: dict[str, Any] = {
        "model.train": recipe.model.train,
        "model.weights": recipe.model.weights,
        _WEIGHTS: model.identity.sha256[:_SHOWN_OF_DIGEST],
        "model.vae": model.vae_sha256[:_SHOWN_OF_DIGEST] if model.vae_sha256 else None,
        "objective.prediction_type": model.architecture.prediction_type,
        _OPTIMIZER: recipe.optimizer.name,
    }
    if recipe.model.train == "lora":
        origin |= {"lora.rank": recipe.lora.rank, "lora.alpha": alpha_of(recipe.lora)}
    return origin


def refuse_other(
    saved: Mapping[str, Any],
    parameters: Mapping[str, nn.Parameter],
    model: Model,
    recipe: Recipe,
    *,
    with_moments: bool = True,
) -> None:
    """Refuse a checkpoint's state that was made of something else than the recipe describes now.

    Moments are of one optimizer, and no other can read them; who does not want them says so.
    """
    begun, now = saved.get("origin", {}), origin_of(model, recipe)
    if not with_moments:
        del now[_OPTIMIZER]
    changed = [
        f"{name} {begun[name]!r}, now {value!r}"
        for name, value in now.items()
        if name in begun and begun[name] != value
    ]
    if changed:
        rule = f"holds a run that was begun with {'; '.join(changed)}"
        raise _refusal(f"{rule}; give the settings it was begun with, or use another name or folder")
    example = _first_difference(saved["parameters"], parameters)
    if example:
        rule = f"holds a checkpoint of something else than a {recipe.model.train} like this one"
        raise _refusal(f"{rule}: {example}; use another name or folder")


def _first_difference(saved: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> str | None:
    for name in sorted(set(saved) | set(now)):
        if name not in saved or name not in now:
            return f"{name!r} is only in one of them"
        if saved[name].shape != now[name].shape:
            return f"{name!r} has shape {tuple(saved[name].shape)}, now {tuple(now[name].shape)}"
    return None


def _refusal(rule: str) -> RequestError:
    return RequestError([Problem("checkpoint.folder", rule)])
