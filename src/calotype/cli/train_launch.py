"""A training elsewhere: its recipe checked here, and told of the launch's nodes and processes.

`calotype train RECIPE --launch …` and `calotype launch … train RECIPE` come here.
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
"""The row of a benchmark, in the job's folder."""
_DEVICES, _NODES = "trainer.devices", "trainer.nodes"


@dataclass(frozen=True)
class Training:
    """What is trained."""

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


def submit_training(asked: LaunchOptions, context: typer.Context, as_json: bool) -> None:
    """Tell the recipe of the launch's processes, refuse what does not fit together, and submit."""
    from calotype.spec.launch import FOLDER

    (recipe, *overrides), options = typed(context)
    if context.params["benchmark"] and context.params["record"] is None:
        options = [*options, f"--record={FOLDER}/{RECORD}"]
    spec, told = fitted(asked.spec(recipe, ["train", recipe]), Training.of(context.params), asked)
    assert asked.where is not None
    submit_launch(asked.where, spec.changed(command=("train", recipe, *overrides, *told, *options)), as_json)


def fitted(
    spec: "LaunchSpec", training: Training, asked: LaunchOptions, *, ask_cluster: bool = True
) -> "tuple[LaunchSpec, list[str]]":
    """The launch as the training wants it, and the overrides that tell the recipe of it.

    What only one of them says the other follows; raises RequestError where they contradict each other.
    """
    from calotype.train.recipes import load_recipe
    from calotype.train.start_weights import check_encoders_are_chosen, check_weights_are_chosen

    resolved, said = _read(training)
    if training.precomputes:
        check_encoders_are_chosen(resolved.recipe)
    elif not training.benchmark:
        check_weights_are_chosen(resolved.recipe)
    spec = _laid_out(spec, {**_own_layout(resolved), **said}, training.on_cpu)
    if not training.on_cpu and ask_cluster:
        spec = asked.with_gpus(spec)
    elif not training.on_cpu:
        warn_of_no_gpus(spec, asked.where)
    _check_agreement(spec, resolved.recipe, said)
    told = [f"{key}={str(value).lower()}" for key, value in _told(spec, resolved).items() if key not in said]
    # All of it before anything waits in a queue.
    load_recipe(training.recipe, [*training.overrides, *told])
    return spec, told


def _read(training: Training) -> "tuple[ResolvedRecipe, dict[str, int]]":
    """The recipe without what overrides say of devices and nodes, as its batch may have to grow; and that."""
    from calotype.spec.overrides import flatten, parse_overrides
    from calotype.train.recipes import load_recipe

    layout = [word for word in training.overrides if word.partition("=")[0] in (_DEVICES, _NODES)]
    said = flatten(parse_overrides(layout))
    if not all(isinstance(value, int) and value > 0 for value in said.values()):
        load_recipe(training.recipe, training.overrides)  # raises, with what is wrong
    others = [word for word in training.overrides if word not in layout]
    return load_recipe(training.recipe, others), said


def _own_layout(resolved: "ResolvedRecipe") -> dict[str, int]:
    """What the recipe's file says of devices and nodes."""
    from calotype.train.recipes import DEFAULT

    trainer = resolved.recipe.trainer
    values = {_DEVICES: trainer.devices, _NODES: trainer.nodes}
    return {key: value for key, value in values.items() if resolved.sources[key] != DEFAULT}


def _laid_out(spec: "LaunchSpec", wished: Mapping[str, int], on_cpu: bool) -> "LaunchSpec":
    """With the devices and nodes that the recipe wishes for, where the launch says nothing of them."""
    said, changes = spec.model_fields_set, {}
    if _NODES in wished and "nodes" not in said:
        changes["nodes"] = wished[_NODES]
    if _DEVICES in wished and not spec.gpus_per_node and "processes_per_node" not in said:
        if not on_cpu and "gpus_per_node" not in said:
            changes["gpus_per_node"] = wished[_DEVICES]
        elif spec.launcher == "torchrun":
            changes["processes_per_node"] = wished[_DEVICES]
    return spec.changed(**changes) if changes else spec


def warn_of_no_gpus(spec: "LaunchSpec", where: str | None) -> None:
    """Say that a cluster may give no GPUs where nobody asked for any."""
    # None that were said are none that are wanted; on Ray, slices of GPUs have names of their own.
    is_answered = "gpus_per_node" in spec.model_fields_set or (where == "ray" and spec.ray.resources)
    if where != "local" and not is_answered:
        fix = "add --gpus-per-node before `train`, or --device cpu after the recipe if none are wanted"
        typer.echo(f"warning: no GPUs are asked for, so {where} may give it none; {fix}", err=True)


def _check_agreement(spec: "LaunchSpec", recipe: "Recipe", said: Mapping[str, int]) -> None:
    """Refuse devices and nodes other than those the launch starts."""
    from calotype.core.errors import Problem, RequestError

    starts = {_DEVICES: spec.processes_on_a_node, _NODES: spec.nodes}
    # Without torchrun the command starts its processes by itself.
    free = {_DEVICES} if spec.launcher == "plain" else set()
    wrong = [key for key, value in said.items() if key not in free and value != starts[key]]
    if not wrong or recipe.trainer.elastic or spec.min_nodes is not None:
        return
    asks = starts | dict(said)
    rule = f"the recipe asks for {asks[_DEVICES]} devices × {asks[_NODES]} nodes, the launch starts "
    rule += f"{starts[_DEVICES]} processes × {starts[_NODES]} nodes; leave trainer.devices and nodes out"
    raise RequestError([Problem(wrong[0], rule, said[wrong[0]])])


def _told(spec: "LaunchSpec", resolved: "ResolvedRecipe") -> dict[str, int | bool]:
    """What the recipe has to know of the launch."""
    from calotype.train.recipes import OVERRIDE

    if spec.launcher == "plain":
        return {}
    told: dict[str, int | bool] = {_DEVICES: spec.processes_on_a_node, _NODES: spec.nodes}
    if spec.min_nodes is not None and resolved.sources["trainer.elastic"] != OVERRIDE:
        told["trainer.elastic"] = True
    if resolved.sources["model.global_batch_size"] != OVERRIDE:
        told |= _larger_batch(resolved.recipe, spec.num_processes)
    return told


def _larger_batch(recipe: "Recipe", num_processes: int) -> dict[str, int]:
    """A batch that so many processes can share, where the recipe's own is too small or does not divide."""
    part = recipe.model
    if part.global_batch_size % (part.micro_batch_size * num_processes) == 0:
        return {}
    size = part.micro_batch_size * recipe.accumulation * num_processes
    each = f"{part.micro_batch_size * recipe.accumulation} for each of {num_processes} processes"
    why = f"the recipe's {part.global_batch_size} cannot be shared, so {each}"
    typer.echo(f"model.global_batch_size={size}: {why}", err=True)
    return {"model.global_batch_size": size}
