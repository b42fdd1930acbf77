"""`calotype train RECIPE --launch …`: the recipe checked here, and run elsewhere on as many processes."""

from typing import TYPE_CHECKING

import typer

from calotype.cli.launching import Asked, hand_in, typed

if TYPE_CHECKING:
    from calotype.spec.recipe import Recipe

RECORD = "record.json"
"""The row of a benchmark, in the job's folder."""


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


def hand_in_training(asked: Asked, context: typer.Context, as_json: bool) -> None:
    """Tell the recipe of the launch's processes, refuse what does not fit together, and submit."""
    from calotype.core.errors import Problem, RequestError
    from calotype.spec.launch import FOLDER
    from calotype.train.recipes import load_recipe

    (recipe, *overrides), options = typed(context)
    if context.params["benchmark"] and context.params["record"] is None:
        options = [*options, f"--record={FOLDER}/{RECORD}"]
    spec = asked.spec(recipe, ["train", recipe])
    if context.params["device"] != "cpu":
        spec = asked.with_gpus(spec)
    told = {"trainer.devices": spec.processes_on_a_node, "trainer.nodes": spec.nodes}
    if spec.min_nodes is not None:
        told["trainer.elastic"] = True
    said = {word.partition("=")[0] for word in overrides}
    if "model.global_batch_size" not in said:
        told |= _larger_batch(load_recipe(recipe, overrides).recipe, spec.num_processes)
    overrides += [f"{key}={str(value).lower()}" for key, value in told.items() if key not in said]
    # All of it before anything waits in a queue.
    chosen = load_recipe(recipe, overrides).recipe
    if chosen.num_processes != spec.num_processes and not chosen.trainer.elastic:
        asks = f"{chosen.trainer.devices} devices × {chosen.trainer.nodes} nodes"
        starts = f"{spec.processes_on_a_node} processes × {spec.nodes} nodes"
        rule = f"the recipe asks for {asks}, the launch starts {starts}; leave trainer.devices and nodes out"
        raise RequestError([Problem("trainer.devices", rule, chosen.trainer.devices)])
    assert asked.where is not None
    command = ("train", recipe, *overrides, *options)
    hand_in(asked.where, spec.changed(command=command), as_json)
