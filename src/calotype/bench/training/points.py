"""Converts the settings of a training sweep, a recipe and its dotted keys, to jobs."""

from __future__ import annotations

from collections.abc import Mapping

from calotype.core.errors import Problem, RequestError
from calotype.spec.bench_job import OURS, OURS_ALONE, System, TrainJob
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import Setting
from calotype.train.recipes import load_recipe

SHORT = {"batch": ("model.micro_batch_size", "model.global_batch_size")}
"""Short name for several keys: the micro-batch size, with an update after each micro-batch."""


def job_of(
    settings: Mapping[str, Setting],
    system: System,
    *,
    device: str | None = None,
    units: int | None = None,
    warmup: int | None = None,
) -> TrainJob:
    """Return one point's job; raise one error with every problem of its recipe."""
    given = {key: value for key, value in settings.items() if key != "recipe"}
    if system != OURS:
        given = {key: value for key, value in given.items() if key not in OURS_ALONE["train"]}
    overrides = [
        f"{key}={_typed(value)}" for name, value in given.items() for key in SHORT.get(name, (name,))
    ]
    recipe = load_recipe(str(settings.get("recipe", "emoji")), overrides).recipe
    problems = _problems(recipe, system)
    if problems:
        raise RequestError(problems)
    counts = {"units": units, "warmup": warmup}
    return TrainJob(
        system=system,
        recipe=recipe,
        device=device,
        **{name: count for name, count in counts.items() if count is not None},
    )


def _problems(recipe: Recipe, system: System) -> list[Problem]:
    found = []
    if recipe.trainer.nodes > 1:
        rule = f"{recipe.trainer.nodes} nodes cannot be started from here"
        found.append(Problem("trainer.nodes", f"{rule}; use calotype train --benchmark under your launcher"))
    if system == OURS:
        return found
    allowed = {
        "model.train": (recipe.model.train, ("unet",)),
        "model.precision": (recipe.model.precision, ("bf16", "fp32")),
        "data.kind": (recipe.data.kind, ("synthetic", "synthetic_latents")),
        "trainer.devices": (recipe.trainer.devices, (1,)),
    }
    for key, (value, known) in allowed.items():
        if value not in known:
            fix = " or ".join(str(one) for one in known)
            found.append(
                Problem(key, f"{value!r} is not supported by the loop of {system}; use {fix}", value)
            )
    return found


def _typed(value: Setting) -> str:
    """Format a value as a recipe override."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
