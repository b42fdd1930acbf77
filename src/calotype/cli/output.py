"""Output of the command line: `print_json` for programs, `console` for people."""

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
    """`value` as plain JSON types; dataclasses become objects, enums their values, paths strings."""
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
    # Requests and records are pydantic models; duck typing avoids the import of pydantic.
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form; give print_json plain values or a dataclass")


def print_json(value: object) -> None:
    """Print one JSON value to stdout, with sorted keys, in UTF-8 whatever the locale."""
    text = json.dumps(plain(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # A file name may hold undecodable bytes; their surrogates are written as JSON escapes.
    typer.echo(text.encode(errors="backslashreplace"))


def console(*, stderr: bool = False) -> "Console":
    """A rich console; COLUMNS sets its width and NO_COLOR disables colors."""
    from rich.console import Console

    # No automatic highlighting or markup: a prompt with [brackets] must print unchanged.
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
