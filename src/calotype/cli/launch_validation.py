"""Validate the command of a launch before submission, and adapt its recipe to the launch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from calotype.cli.launch_options import OF_A_LAUNCH, LaunchOptions

if TYPE_CHECKING:
    from calotype.spec.launch import LaunchSpec

_TRAINS = ("run", "precompute")
"""Commands of `calotype train` that run on several processes."""


def checked(
    context: typer.Context, spec: "LaunchSpec", options: LaunchOptions, *, ask_cluster: bool
) -> "LaunchSpec":
    """Return the launch with overrides that fit its recipe to it; raise for a command that could not run.

    `context` may be of any command of the app.
    """
    from calotype.cli.train_launch import Training, fitted, warn_of_no_gpus
    from calotype.spec.launch import TASK

    # As the first task of a job array gets them.
    words = [word.replace(TASK, "0") for word in spec.words()]
    _check_names(context, words)
    if words[0] != "train":
        return spec
    verb, params = _parsed(context, words[1:])
    if verb not in _TRAINS:
        _check_other(verb, params)
        if verb == "table" and params["device"] != "cpu":
            warn_of_no_gpus(spec, options.where)
        return spec
    spec, overrides = fitted(spec, Training.of(params), options, ask_cluster=ask_cluster)
    return spec.changed(command=(*spec.command, *overrides))


def _check_names(context: typer.Context, words: list[str]) -> None:
    """Raise for unknown commands; the word after `train` may be a recipe."""
    from calotype.core.errors import Problem, RequestError, did_you_mean

    command, path = context.find_root().command, "calotype"
    for word in words:
        if not isinstance(command, TyperGroup) or path == "calotype train":
            return
        if word not in command.commands:
            rule = f"{path} has no command {word!r}; {did_you_mean(word, command.commands)}"
            raise RequestError([Problem("command", rule, word)])
        command, path = command.commands[word], f"{path} {word}"
    if isinstance(command, TyperGroup):
        rule = f"{path} needs a command: {', '.join(sorted(command.commands))}"
        raise RequestError([Problem("command", rule, path)])


def _parsed(context: typer.Context, words: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The subcommand of `calotype train` and its parsed parameters; raises the errors that it would raise."""
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
        rule = f"is a launch option; write it before 'train {words[0]}'"
        raise RequestError([Problem(misplaced[0], rule)])
    return verb, params


def _check_other(verb: str, params: Mapping[str, Any]) -> None:
    from calotype.train.recipes import load_recipe, load_table

    if verb == "export":
        load_recipe(params["recipe"], params["overrides"] or ())
    elif verb == "table":
        load_table(params["name"])
