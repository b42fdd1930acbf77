"""Checks of the values of all options and arguments.

The root group applies them to every command, so new commands need no code for them.
"""

import math
from collections.abc import Iterable
from typing import Any

from calotype.core.errors import Problem, RequestError

MAY_BE_EMPTY = frozenset({"prompts", "prompt", "negative", "inside"})
"""Parameters that accept an empty string: prompts, and `mig deploy --command`."""


def check_values_of(command: Any) -> None:
    """Make a command and its subcommands reject empty strings and non-finite numbers."""
    for subcommand in getattr(command, "commands", {}).values():
        check_values_of(subcommand)
    for parameter in command.params:
        if "process_value" not in vars(parameter):
            parameter.process_value = _with_checks(parameter, parameter.process_value)


def _with_checks(parameter: Any, process: Any) -> Any:
    name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.name.upper()

    def checked(ctx: Any, value: Any) -> Any:
        # Checked before conversion: an empty path would become the current folder.
        if parameter.name not in MAY_BE_EMPTY and any(item == "" for item in _each(value)):
            raise RequestError([Problem(name, "is empty; give a value, or omit it", "")])
        converted = process(ctx, value)
        for item in _each(converted):
            if isinstance(item, float) and not math.isfinite(item):
                raise RequestError([Problem(name, f"{item} is not finite; give a finite number", item)])
        return converted

    return checked


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)
