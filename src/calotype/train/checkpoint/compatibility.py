"""Check that a checkpoint belongs to the current recipe before it is resumed or exported.

The same parameter names and shapes have another meaning beside another base model, with another prediction
type or another LoRA alpha, and nothing would look wrong until the images do. Settings that may change in a
resumed run (learning rate, batch sizes, precision, number of processes) are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from calotype.core.errors import Problem, RequestError
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.tasks.lora import alpha_of

_DIGEST_CHARS = 12
_WEIGHTS = "weights of model.base"
_OPTIMIZER = "optimizer.name"


def origin_of(model: Model, recipe: Recipe) -> dict[str, Any]:
    """The settings to compare, by the names that users know; plain values, stored in a checkpoint."""
    origin: dict[str, Any] = {
        "model.train": recipe.model.train,
        "model.weights": recipe.model.weights,
        _WEIGHTS: model.identity.sha256[:_DIGEST_CHARS],
        "model.vae": model.vae_sha256[:_DIGEST_CHARS] if model.vae_sha256 else None,
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
    """Refuse a checkpoint that was saved under other settings than the recipe's.

    Optimizer moments fit only their own optimizer; callers that do not load them pass `with_moments=False`.
    """
    saved_origin, current = saved.get("origin", {}), origin_of(model, recipe)
    if not with_moments:
        del current[_OPTIMIZER]
    changed = [
        f"{name} {saved_origin[name]!r}, now {value!r}"
        for name, value in current.items()
        if name in saved_origin and saved_origin[name] != value
    ]
    if changed:
        rule = f"holds a run that was started with {'; '.join(changed)}"
        raise _refusal(f"{rule}; use the settings it was started with, or another name or folder")
    example = _first_difference(saved["parameters"], parameters)
    if example:
        rule = f"holds a checkpoint with other parameters than this {recipe.model.train} run"
        raise _refusal(f"{rule}: {example}; use another name or folder")


def _first_difference(saved: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> str | None:
    for name in sorted(set(saved) | set(current)):
        if name not in saved or name not in current:
            return f"{name!r} is only in one of them"
        if saved[name].shape != current[name].shape:
            return f"{name!r} has shape {tuple(saved[name].shape)}, now {tuple(current[name].shape)}"
    return None


def _refusal(rule: str) -> RequestError:
    return RequestError([Problem("checkpoint.folder", rule)])
