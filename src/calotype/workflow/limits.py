"""The most that nodes may make, looked at before one runs and after. Knows nothing of how nodes run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.workflow.extents import extent_of, measured
from calotype.workflow.interface import Extent, NodeClass, Output


@dataclass(frozen=True)
class GraphLimits:
    """Of one picture, and of one batch."""

    max_pixels: int
    """Width times height of what a node makes; a LATENT's are those of its picture."""
    max_count: int
    """Pictures in one batch."""
    max_steps: int
    max_given_pixels: int
    """Width times height of a picture that a node reads."""

    def check_given(self, known: NodeClass, inputs: Mapping[str, Any]) -> None:
        """Refuse a node that is going to make too much, as far as it can be told from what it is given."""
        problems = [Problem(place, rule) for place, rule in self.over(inputs)]
        if known.makes is not None and not problems:
            made = known.makes(measured(known, inputs))
            problems += [
                problem
                for output, extent in zip(known.outputs, made, strict=True)
                if extent is not None
                for problem in self._too_much(known, output, extent)
            ]
        if problems:
            raise RequestError(problems)

    def check_made(self, known: NodeClass, outputs: tuple[Any, ...]) -> None:
        """Refuse what a node has made, if it is too much."""
        problems = [
            problem
            for output, value in zip(known.outputs, outputs, strict=True)
            if (extent := extent_of(output.type, value)) is not None
            for problem in self._too_much(known, output, extent)
        ]
        if problems:
            raise RequestError(problems)

    def over(self, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Inputs whose numbers say too much, and the rule."""
        width, height = inputs.get("width"), inputs.get("height")
        if isinstance(width, int) and isinstance(height, int) and width * height > self.max_pixels:
            yield "width", _too_large(Extent(1, width, height), self.max_pixels)
        for place, limit in (("batch_size", self.max_count), ("steps", self.max_steps)):
            value = inputs.get(place)
            if isinstance(value, int) and value > limit:
                yield place, f"{value}, the limit here is {limit}"

    def _too_much(self, known: NodeClass, output: Output, extent: Extent) -> Iterator[Problem]:
        place = output.name or output.type
        if extent.count > self.max_count:
            rule = f"{extent.count} in one batch, the limit here is {self.max_count}; make fewer at a time"
            yield Problem(place, rule)
        most = self.max_pixels
        if output.is_sheet:
            most *= self.max_count
        elif any(declared.upload for declared in known.inputs):
            most = self.max_given_pixels
        if extent.width * extent.height > most:
            yield Problem(place, f"{_too_large(extent, most)}; make it smaller")


def _too_large(extent: Extent, limit: int) -> str:
    pixels = extent.width * extent.height
    return f"{extent.width}×{extent.height} is {pixels} pixels, the limit here is {limit}"
