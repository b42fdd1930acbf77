"""Sizes of pictures and how many at once, as an engine is prepared for. Knows nothing of engines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from calotype.core.errors import Problem, RequestError
from calotype.spec.generate_request import GenerateRequest

_WRITTEN = re.compile(r"(\d{1,6})x(\d{1,6})(?:x(\d{1,6}))?")


@dataclass(frozen=True, order=True)
class Shape:
    """One batch of pictures."""

    width: int
    height: int
    count: int = 1

    def __str__(self) -> str:
        return f"{self.width}x{self.height}x{self.count}"


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """`512x512x1,1024x1024x4`: width, height and pictures at once; every problem is reported at once."""
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
    written = _WRITTEN.fullmatch(text)
    if not written:
        rule = f"{text[:60]!r} is not a shape; write WIDTHxHEIGHTxCOUNT, such as 512x512x1"
        raise RequestError([Problem("shapes", rule, text[:60])])
    shape = Shape(*(int(number) for number in written.groups(default="1")))
    try:
        GenerateRequest.parse({"prompt": "", **vars(shape)})
    except RequestError as error:
        found = (Problem("shapes", f"{text}: {problem}", text) for problem in error.problems)
        raise RequestError(found) from None
    return shape
