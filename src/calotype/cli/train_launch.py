"""Launched training: validates the recipe and sets its nodes and processes to those of the launch.

Used by `calotype train RECIPE --launch …` and `calotype launch … train RECIPE`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from calotype.cli.launch_options import LaunchOptions, submit_launch, typed

if TYPE_CHECKING:
    from calotype.spec.launch import LaunchSpec
    from calotype.spec.recipe import Recipe
    from calotype.train.recipes import ResolvedRecipe

RECORD = "record.json"
"""Benchmark record in the folder of the job."""
_DEVICES, _NODES = "trainer.devices", "trainer.nodes"


@dataclass(frozen=True)
class Training:
    """The training command of a launch."""

    recipe: str
    overrides: Sequence[str]
    on_cpu: bool
    benchmark: bool = False
    precomputes: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "Training":
        """From the arguments and options of a command."""
        return cls(
            params["recipe"],
            params["overrides"] or (),
            params["device"] == "cpu",
            benchmark=bool(params.get("benchmark")),
            precomputes="samples_per_shard" in params,
        )


def submit_training(launch: LaunchOptions, context: typer.Context, as_json: bool) -> None:
    """Fit recipe and launch to each other, raise if they contradict, and submit."""
    from calotype.spec.launch import FOLDER

    (recipe, *overrides), options = typed(context)
    if context.params["benchmark"] and context.params["record"] is None:
        options = [*options, f"--record={FOLDER}/{RECORD}"]
    spec, added = fitted(launch.spec(recipe, ["train", recipe]), Training.of(context.params), launch)
    assert launch.where is not None
    submit_launch(
        launch.where, spec.changed(command=("train", recipe, *overrides, *added, *options)), as_json
    )


def fitted(
    spec: "LaunchSpec", training: Training, launch: LaunchOptions, *, ask_cluster: bool = True
) -> "tuple[LaunchSpec, list[str]]":
    """The launch adapted to the recipe, and the overrides that adapt the recipe to the launch.

    A setting that only one of them has applies to both; raises RequestError if they contradict.
    """
    from calotype.train.recipes import load_recipe
    from calotype.train.start_weights import check_encoders_are_chosen, check_weights_are_chosen

    resolved, given = _read(training)
    if training.precomputes:
        check_encoders_are_chosen(resolved.recipe)
    elif not training.benchmark:
        check_weights_are_chosen(resolved.recipe)
    spec = _laid_out(spec, {**_own_layout(resolved), **given}, training.on_cpu)
    if not training.on_cpu and ask_cluster:
        spec = launch.with_gpus(spec)
    elif not training.on_cpu:
        warn_of_no_gpus(spec, launch.where)
    _check_agreement(spec, resolved.recipe, given)
    added = [
        f"{key}={str(value).lower()}"
        for key, value in _launch_overrides(spec, resolved).items()
        if key not in given
    ]
    # Validate everything before the job waits in a queue.
    load_recipe(training.recipe, [*training.overrides, *added])
    return spec, added


def _read(training: Training) -> "tuple[ResolvedRecipe, dict[str, int]]":
    """The recipe without overrides of devices and nodes, as its batch may have to grow; and the overrides."""
    from calotype.spec.overrides import flatten, parse_overrides
    from calotype.train.recipes import load_recipe

    layout = [word for word in training.overrides if word.partition("=")[0] in (_DEVICES, _NODES)]
    given = flatten(parse_overrides(layout))
    if not all(isinstance(value, int) and value > 0 for value in given.values()):
        load_recipe(training.recipe, training.overrides)  # raises with the problem
    others = [word for word in training.overrides if word not in layout]
    return load_recipe(training.recipe, others), given


def _own_layout(resolved: "ResolvedRecipe") -> dict[str, int]:
    """Devices and nodes that the recipe file sets."""
    from calotype.train.recipes import DEFAULT

    trainer = resolved.recipe.trainer
    values = {_DEVICES: trainer.devices, _NODES: trainer.nodes}
    return {key: value for key, value in values.items() if resolved.sources[key] != DEFAULT}


def _laid_out(spec: "LaunchSpec", requested: Mapping[str, int], on_cpu: bool) -> "LaunchSpec":
    """The launch with devices and nodes of the recipe where it has none of its own."""
    fields_set, changes = spec.model_fields_set, {}
    if _NODES in requested and "nodes" not in fields_set:
        changes["nodes"] = requested[_NODES]
    if _DEVICES in requested and not spec.gpus_per_node and "processes_per_node" not in fields_set:
        if not on_cpu and "gpus_per_node" not in fields_set:
            changes["gpus_per_node"] = requested[_DEVICES]
        elif spec.launcher == "torchrun":
            changes["processes_per_node"] = requested[_DEVICES]
    return spec.changed(**changes) if changes else spec


def warn_of_no_gpus(spec: "LaunchSpec", where: str | None) -> None:
    """Warn that a cluster may assign no GPUs when the launch requests none."""
    # An explicit 0 is intended; on Ray, GPU slices are custom resources.
    is_decided = "gpus_per_node" in spec.model_fields_set or (where == "ray" and spec.ray.resources)
    if where != "local" and not is_decided:
        fix = "add --gpus-per-node before `train`, or --device cpu after the recipe to train without"
        typer.echo(f"warning: the launch requests no GPUs, so {where} may assign none; {fix}", err=True)


def _check_agreement(spec: "LaunchSpec", recipe: "Recipe", given: Mapping[str, int]) -> None:
    """Raise if the recipe needs other devices and nodes than the launch starts."""
    from calotype.core.errors import Problem, RequestError

    starts = {_DEVICES: spec.processes_on_a_node, _NODES: spec.nodes}
    # Without torchrun the command starts its own processes.
    free = {_DEVICES} if spec.launcher == "plain" else set()
    wrong = [key for key, value in given.items() if key not in free and value != starts[key]]
    if not wrong or recipe.trainer.elastic or spec.min_nodes is not None:
        return
    needs = starts | dict(given)
    rule = f"the recipe needs {needs[_DEVICES]} devices × {needs[_NODES]} nodes, the launch starts "
    rule += f"{starts[_DEVICES]} processes × {starts[_NODES]} nodes; omit trainer.devices and trainer.nodes"
    raise RequestError([Problem(wrong[0], rule, given[wrong[0]])])


def _launch_overrides(spec: "LaunchSpec", resolved: "ResolvedRecipe") -> dict[str, int | bool]:
    """Recipe settings that follow from the launch."""
    from calotype.train.recipes import OVERRIDE

    if spec.launcher == "plain":
        return {}
    settings: dict[str, int | bool] = {_DEVICES: spec.processes_on_a_node, _NODES: spec.nodes}
    if spec.min_nodes is not None and resolved.sources["trainer.elastic"] != OVERRIDE:
        settings["trainer.elastic"] = True
    if resolved.sources["model.global_batch_size"] != OVERRIDE:
        settings |= _larger_batch(resolved.recipe, spec.num_processes)
    return settings


def _larger_batch(recipe: "Recipe", num_processes: int) -> dict[str, int]:
    """A global batch divisible by the processes, if that of the recipe is not."""
    model = recipe.model
    if model.global_batch_size % (model.micro_batch_size * num_processes) == 0:
        return {}
    size = model.micro_batch_size * recipe.accumulation * num_processes
    each = f"{model.micro_batch_size * recipe.accumulation} for each of {num_processes} processes"
    why = f"the recipe's {model.global_batch_size} cannot be divided, so {each}"
    typer.echo(f"model.global_batch_size={size}: {why}", err=True)
    return {"model.global_batch_size": size}
