"""Parsers of option values such as LORA:STRENGTH, HEIGHTxWIDTH and KNOB=V1,V2.

GenerateRequest validates the parsed values.
"""

import json
from typing import Any

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.image import GridAxis

MAX_CELLS_A_SIDE = 64
NOT_VARIED = ("image", "mask", "micro", "loras", "count")
SHORT_NAMES = {"negative": "negative_prompt", "scheduler": "schedule"}


def parse_lora(text: str) -> dict[str, Any]:
    """`name`, `name:0.8` or `name:0.8:0.5`."""
    name, *strengths = text.split(":")
    if len(strengths) > 2:
        raise RequestError([Problem("--lora", f"{text!r} should be NAME[:STRENGTH[:TEXT_STRENGTH]]", text)])
    try:
        numbers = [float(strength) for strength in strengths]
    except ValueError:
        raise RequestError(
            [Problem("--lora", f"{text!r}: a strength is a number, for example {name}:0.8", text)]
        ) from None
    return {"name": name, **dict(zip(("strength", "text_strength"), numbers, strict=False))}


def parse_pair(field: str, text: str) -> list[int]:
    """`1024x768` as [1024, 768]."""
    first, separator, second = text.lower().replace("×", "x").partition("x")
    if not separator or not first.strip().isdecimal() or not second.strip().isdecimal():
        raise RequestError(
            [Problem(f"micro.{field}", f"{text!r} should be two numbers, for example 1024x1024", text)]
        )
    return [int(first), int(second)]


def parse_axis(text: str) -> GridAxis:
    """`steps=1,2,4` as an axis; prompts with commas are written as a JSON list: `prompt=["a, b", "c"]`."""
    knob, separator, values_text = text.partition("=")
    knob = SHORT_NAMES.get(knob.strip(), knob.strip())
    known = [name for name in GenerateRequest.model_fields if name not in NOT_VARIED]
    if knob not in known:
        raise RequestError(
            [
                Problem(
                    "--grid",
                    f"{knob!r} is not a setting that a grid can vary; {did_you_mean(knob, known)}",
                    text,
                )
            ]
        )
    if not separator or not values_text.strip():
        raise RequestError([Problem("--grid", f"{text!r} names no values; write {knob}=VALUE,VALUE,…", text)])
    if values_text.lstrip().startswith("["):
        try:
            values = json.loads(values_text)
        except ValueError as error:
            raise RequestError(
                [Problem("--grid", f"{values_text!r} is not a JSON list: {error}", text)]
            ) from None
    else:
        parts = [part.strip() for part in values_text.split(",")]
        is_text = GenerateRequest.model_fields[knob].annotation in (str, str | None)
        values = parts if is_text else [_value(part) for part in parts]
    if not values:
        raise RequestError([Problem("--grid", f"{text!r} names no values; write {knob}=VALUE,VALUE,…", text)])
    if len(values) > MAX_CELLS_A_SIDE:
        raise RequestError(
            [Problem("--grid", f"{len(values)} values of {knob}; a sheet has at most {MAX_CELLS_A_SIDE}")]
        )
    return GridAxis(knob=knob, values=values)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
