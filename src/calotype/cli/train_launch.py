"""`calotype train RECIPE --launch …`: the recipe checked here, and run elsewhere on as many processes."""

import typer

from calotype.cli.launching import Asked, hand_in, typed

RECORD = "record.json"
"""The row of a benchmark, in the job's folder."""


def hand_in_training(asked: Asked, context: typer.Context, as_json: bool) -> None:
    """Tell the recipe of the launch's processes, refuse what does not fit together, and submit."""
    from calotype.core.errors import Problem, RequestError
    from calotype.spec.launch import FOLDER
    from calotype.train.recipes import load_recipe

    (recipe, *overrides), options = typed(context)
    if context.params["benchmark"] and context.params["record"] is None:
        options = [*options, f"--record={FOLDER}/{RECORD}"]
    spec = asked.spec(recipe, ["train", recipe])
    told = {"trainer.devices": spec.processes_on_a_node, "trainer.nodes": spec.nodes}
    if spec.min_nodes is not None:
        told["trainer.elastic"] = True
    said = {word.partition("=")[0] for word in overrides}
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
    hand_in(asked.where, spec.model_copy(update={"command": command}), as_json)
