"""Converts pydantic errors to Problems with value, rule and fix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from calotype.core.errors import Problem, did_you_mean

MAX_SHOWN_LENGTH = 60
_COMPARISONS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}

_NUMBERS = {"finite_number": "a finite number", "int_parsing": "a whole number", "float_parsing": "a number"}


def problems_of(model: type[BaseModel], error: ValidationError) -> list[Problem]:
    """One problem per invalid field; errors without a field are left out."""
    return [_problem(model, details) for details in error.errors(include_url=False) if details["loc"]]


def problem_of_one(field: str, error: ValidationError) -> Problem:
    """The problem of a single value, such as an option of the command line."""
    details = error.errors(include_url=False)[0]
    return Problem(field, _message(details), _reportable(details.get("input")))


def short_repr(value: object) -> str:
    """A short representation of any value for messages."""
    # Python refuses to format integers of some thousand digits.
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[: MAX_SHOWN_LENGTH - 1]}…"


def _problem(model: type[BaseModel], details: Mapping[str, Any]) -> Problem:
    location = details["loc"]
    if details["type"] == "extra_forbidden":
        key = str(location[-1])[:MAX_SHOWN_LENGTH]
        message = f"is not a known setting; {did_you_mean(key, _fields_at(model, location[:-1]))}"
    else:
        message = _message(details)
    field = ".".join(str(part)[:MAX_SHOWN_LENGTH] for part in location)
    return Problem(field, message, _reportable(details.get("input")))


def _message(details: Mapping[str, Any]) -> str:
    value, context = details.get("input"), details.get("ctx", {})
    match details["type"]:
        case "missing":
            return "is required"
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than":
            rule = ", ".join(f"{_COMPARISONS[key]} {limit}" for key, limit in context.items())
            return f"{short_repr(value)} is out of range; it must be {rule}"
        case "finite_number" | "int_parsing" | "float_parsing" as kind:
            return f"{short_repr(value)} is not {_NUMBERS[kind]}"
        case "value_error":
            return str(context["error"])
        case _:
            return f"{short_repr(value)}: {details['msg'][0].lower()}{details['msg'][1:]}"


def _reportable(value: object) -> object:
    """The value if it is a small JSON value, else its short representation."""
    if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, int) and value.bit_length() <= 64:
        return value
    return value if isinstance(value, str) and len(value) <= MAX_SHOWN_LENGTH else short_repr(value)


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names of the settings at a location inside a request."""
    for part in location:
        # Other parts are list indices or keys that the user chose.
        named = [field for name, field in model.model_fields.items() if part in (name, field.alias)]
        model = (_model_in(named[0].annotation) if named else None) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model inside an annotation such as `tuple[Model, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for argument in get_args(annotation) if (found := _model_in(argument))), None)
