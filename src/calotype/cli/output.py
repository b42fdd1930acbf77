"""The one place that prints: machine-readable objects and the console for people.

Knows nothing of what is printed. People's output goes through `console()`, a program's through `print_json`.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def plain(value: object) -> Any:
    """`value` as JSON's own types; dataclasses become objects, enums their values, paths their text."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _plain_container(value)


def _plain_container(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in value]
    # Requests and records are pydantic models, which the command line need not load to print.
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form; give print_json plain values or a dataclass")


def print_json(value: object) -> None:
    """Print one JSON value to stdout: sorted keys, UTF-8 whatever the locale, nothing else."""
    text = json.dumps(plain(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # A file's name may be no text; what stands for its bytes is written as JSON's own escape.
    typer.echo(text.encode(errors="backslashreplace"))


def console(*, stderr: bool = False) -> "Console":
    """A console for people; COLUMNS sets its width and NO_COLOR takes its colours away."""
    from rich.console import Console

    # Numbers and paths are coloured only where we mean it; a prompt with [brackets] must print as it is.
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
