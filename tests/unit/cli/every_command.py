"""Runs every command of the command line in this process and prints what became of each, as JSON.

`python every_command.py help` asks each for its help; `python every_command.py call` gives each the arguments
and options that it requires, with values that mean nothing. The commands come from the application itself.
Imports nothing but Calotype, so that it runs where only Calotype is installed.
"""

import contextlib
import io
import json
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import typer

from calotype.cli.main import app, run

LONG = {"bench ceiling", "bench inference", "bench train", "bench scale", "generate", "mig simulate"}
"""With what they require alone, these measure or serve; `help` covers them."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its words."""
    yield from _below(typer.main.get_command(app), ())


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(words), command
        return
    for name, inner in command.commands.items():
        yield from _below(inner, (*words, name))


def required(command: Any) -> list[str]:
    """A value for each argument and option that the command requires."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            is_option = parameter.param_type_name == "option"
            words += [max(parameter.opts, key=len), "nosuch"] if is_option else ["nosuch"]
    return words


def outcome(words: list[str]) -> tuple[int, str]:
    """Exit code and output. A failure that would show a traceback ends with 1, as in a shell."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = run(words)
        except BaseException:
            code = 1
            traceback.print_exc()
    return code, said.getvalue()


def main() -> None:
    seen = {}
    for name, command in commands():
        if sys.argv[1] == "help":
            seen[name] = outcome([*name.split(), "--help"])
        elif name not in LONG:
            seen[name] = outcome([*name.split(), *required(command)])
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
