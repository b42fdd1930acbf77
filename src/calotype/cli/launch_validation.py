"""The command of a launch, before anybody waits for it: whether it can run, and on how many processes.

Runs and submits nothing.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from calotype.cli.launch_options import OF_A_LAUNCH, LaunchOptions

if TYPE_CHECKING:
    from calotype.spec.launch import LaunchSpec

_TRAINS = ("run", "precompute")
"""Verbs of `calotype train` whose processes share the work."""


def checked(
    context: typer.Context, spec: "LaunchSpec", asked: LaunchOptions, *, ask_cluster: bool
) -> "LaunchSpec":
    """The launch with a recipe that knows of it, where it trains; raises for a command that could not run.

    `context` is of any command of ours.
    """
    from calotype.cli.train_launch import Training, fitted, warn_of_no_gpus
    from calotype.spec.launch import TASK

    # As the first task of an array has them.
    words = [word.replace(TASK, "0") for word in spec.words()]
    _check_names(context, words)
    if words[0] != "train":
        return spec
    verb, params = _parsed(context, words[1:])
    if verb not in _TRAINS:
        _check_other(verb, params)
        if verb == "table" and params["device"] != "cpu":
            warn_of_no_gpus(spec, asked.where)
        return spec
    spec, told = fitted(spec, Training.of(params), asked, ask_cluster=ask_cluster)
    return spec.changed(command=(*spec.command, *told))


def _check_names(context: typer.Context, words: list[str]) -> None:
    """Refuse what is no command of ours, or no verb of one; what follows `train` may be a recipe."""
    from calotype.core.errors import Problem, RequestError, did_you_mean

    command, said = context.find_root().command, "calotype"
    for word in words:
        if not isinstance(command, TyperGroup) or said == "calotype train":
            return
        if word not in command.commands:
            rule = f"{said} has no command {word!r}; {did_you_mean(word, command.commands)}"
            raise RequestError([Problem("command", rule, word)])
        command, said = command.commands[word], f"{said} {word}"
    if isinstance(command, TyperGroup):
        rule = f"{said} alone runs nothing; say what of it: {', '.join(sorted(command.commands))}"
        raise RequestError([Problem("command", rule, said)])


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
    misplaced = [option for name, option in OF_A_LAUNCH.items() if params.get(name)]
    if misplaced:
        rule = f"says something about the launch; write it before 'train {words[0]}'"
        raise RequestError([Problem(misplaced[0], rule)])
    return verb, params


def _check_other(verb: str, params: Mapping[str, Any]) -> None:
    from calotype.train.recipes import load_recipe, load_table

    if verb == "export":
        load_recipe(params["recipe"], params["overrides"] or ())
    elif verb == "table":
        load_table(params["name"])
