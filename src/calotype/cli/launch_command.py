"""The command of a launch, before anybody waits for it: whether it can run, and on how many processes.

Runs and submits nothing.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from calotype.cli.launching import Asked

if TYPE_CHECKING:
    from calotype.spec.launch import LaunchSpec

_TRAINS = ("run", "precompute")
"""Verbs of `calotype train` whose processes share the work."""


def checked(context: typer.Context, spec: "LaunchSpec", asked: Asked, *, ask_cluster: bool) -> "LaunchSpec":
    """The launch with a recipe that knows of it, where it trains; raises for a command that could not run.

    `context` is of any command of ours.
    """
    from calotype.cli.train_launch import Training, fitted
    from calotype.spec.launch import TASK

    # As the first task of an array has them.
    words = [word.replace(TASK, "0") for word in spec.words()]
    if words[0] != "train" or not words[1:]:
        return spec
    verb, params = _parsed(context, words[1:])
    if verb not in _TRAINS:
        return spec
    spec, told = fitted(spec, Training.of(params), asked, ask_cluster=ask_cluster)
    return spec.changed(command=(*spec.command, *told))


def _parsed(context: typer.Context, words: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The verb of a `calotype train` and what it was given; what it would refuse is refused in its words."""
    from calotype.core.errors import Problem, RequestError

    if words[0].startswith("-"):
        rule = f"{words[0]} comes before the recipe; write train RECIPE {words[0]}"
        raise RequestError([Problem("command", rule, words[0])])
    root = context.find_root()
    assert isinstance(root.command, TyperGroup)
    train = root.command.commands["train"]
    assert isinstance(train, TyperGroup)
    verb, *rest = words if words[0] in train.commands else ["run", *words]
    params = train.commands[verb].make_context(f"train {verb}", rest, parent=root).params
    return verb, params
