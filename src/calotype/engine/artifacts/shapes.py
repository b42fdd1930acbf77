"""Shapes that an engine is built for: image size and batch size."""

from __future__ import annotations

import re
from dataclasses import dataclass

from calotype.core.errors import Problem, RequestError
from calotype.spec.generate_request import GenerateRequest

_PATTERN = re.compile(r"(\d{1,6})x(\d{1,6})(?:x(\d{1,6}))?")


@dataclass(frozen=True, order=True)
class Shape:
    """One batch of images."""

    width: int
    height: int
    count: int = 1

    def __str__(self) -> str:
        return f"{self.width}x{self.height}x{self.count}"


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Parse `512x512x1,1024x1024x4`: width, height and batch size; reports every problem at once."""
    shapes: list[Shape] = []
    problems: list[Problem] = []
    for part in text.split(","):
        try:
            shapes.append(_shape(part.strip()))
        except RequestError as error:
            problems += error.problems
    if problems:
        raise RequestError(problems)
    return tuple(shapes)


def _shape(text: str) -> Shape:
    match = _PATTERN.fullmatch(text)
    if not match:
        rule = f"{text[:60]!r} is not a shape; write WIDTHxHEIGHTxCOUNT, such as 512x512x1"
        raise RequestError([Problem("shapes", rule, text[:60])])
    shape = Shape(*(int(number) for number in match.groups(default="1")))
    try:
        GenerateRequest.parse({"prompt": "", **vars(shape)})
    except RequestError as error:
        problems = (Problem("shapes", f"{text}: {problem}", text) for problem in error.problems)
        raise RequestError(problems) from None
    return shape
