"""Validates and converts the value of a node's input."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from calotype.workflow.node_api import BOOLEAN, COMBO, FLOAT, INT, STRING, Input

MAX_NAMES_SHOWN = 12
_ELSEWHERE = (" [output]", " [temp]")
_WORDS = {"true": True, "false": False}


class RefusedValueError(ValueError):
    """An input rejects a value; `kind` is the reason as the API names it."""

    def __init__(self, kind: str, rule: str) -> None:
        self.kind = kind
        self.rule = rule
        super().__init__(rule)


def accepted(declared: Input, value: object, choices: Sequence[str] = ()) -> Any:
    """The value that the node receives: a number in text form becomes a number, as in ComfyUI."""
    convert: Callable[..., Any] | None = _CONVERSIONS.get(declared.type)
    if declared.type == COMBO:
        return _chosen(declared, value, choices)
    if convert is None:
        return value
    converted = convert(value)
    if converted is None:
        rule = f"{short(value)} is not {_IN_WORDS[declared.type]}"
        raise RefusedValueError("invalid_input_type", rule)
    if declared.type in (INT, FLOAT):
        _check_limits(declared, converted)
    return converted


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the closest known names, or with some of them if none is close."""
    names = list(known)
    # Mistakes are often in the folder, so only the file names are compared.
    stems = {_stem(known_name): known_name for known_name in reversed(names)}
    near = [stems[stem] for stem in difflib.get_close_matches(_stem(name), stems, n=3, cutoff=0.5)]
    if near:
        return f"did you mean {' or '.join(repr(known_name) for known_name in near)}?"
    if not names:
        return "there are none"
    rest = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return f"there are {', '.join(names[:MAX_NAMES_SHOWN])}{rest}"


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit("\\", 1)[-1].lower()


def _chosen(declared: Input, value: object, choices: Sequence[str]) -> str:
    if isinstance(value, str):
        if value in choices:
            return value
        # Workflows written on Windows have backslashes in paths.
        if value.replace("\\", "/") in choices:
            return value.replace("\\", "/")
        if declared.upload and (value.endswith(_ELSEWHERE) or value.removesuffix(" [input]") in choices):
            return value
    raise RefusedValueError("value_not_in_list", f"{short(value)} is not one of the choices")


def _check_limits(declared: Input, value: float) -> None:
    if declared.minimum is not None and value < declared.minimum:
        rule = f"{value} is below the minimum {declared.minimum}"
        raise RefusedValueError("value_smaller_than_min", rule)
    if declared.maximum is not None and value > declared.maximum:
        rule = f"{value} is above the maximum {declared.maximum}"
        raise RefusedValueError("value_bigger_than_max", rule)


def _whole(value: object) -> int | None:
    try:
        if isinstance(value, str):
            return int(value)
        return int(value) if isinstance(value, int | float) and value == int(value) else None
    except (ValueError, OverflowError):
        return None


def _real(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) else None


def _truth(value: object) -> bool | None:
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    return bool(value) if isinstance(value, bool | int | float) else None


_CONVERSIONS: dict[str, Callable[[object], object]] = {
    INT: _whole,
    FLOAT: _real,
    STRING: _text,
    BOOLEAN: _truth,
}
_IN_WORDS = {INT: "a whole number", FLOAT: "a finite number", STRING: "text", BOOLEAN: "true or false"}


def short(value: object) -> str:
    """A value as messages show it, shortened to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
