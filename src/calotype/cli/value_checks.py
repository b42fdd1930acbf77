"""Rules that hold for the values of every option and argument of every command.

The root applies them to the command that it is about to run, so a new command has them without a word.
"""

import math
from collections.abc import Iterable
from typing import Any

from calotype.core.errors import Problem, RequestError

MAY_BE_EMPTY = frozenset({"prompts", "prompt", "negative", "inside"})
"""Parameters that take an empty text: a prompt without words, and `mig deploy --command`."""


def check_values_of(command: Any) -> None:
    """Have a command, and all commands below it, refuse empty texts and numbers that are not finite."""
    for below in getattr(command, "commands", {}).values():
        check_values_of(below)
    for parameter in command.params:
        if "process_value" not in vars(parameter):
            parameter.process_value = _checked(parameter, parameter.process_value)


def _checked(parameter: Any, process: Any) -> Any:
    name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.name.upper()

    def checked(ctx: Any, value: Any) -> Any:
        # As it was written: an empty path would be read as the current folder.
        if parameter.name not in MAY_BE_EMPTY and any(one == "" for one in _each(value)):
            raise RequestError([Problem(name, "is empty; give a value, or leave it out", "")])
        made = process(ctx, value)
        for one in _each(made):
            if isinstance(one, float) and not math.isfinite(one):
                raise RequestError([Problem(name, f"{one} is not a finite number; give one that is", one)])
        return made

    return checked


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)
