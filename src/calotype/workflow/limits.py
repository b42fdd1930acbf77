"""The most that nodes may make, looked at before one runs and after. Knows nothing of how nodes run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.workflow.node_api import LATENT, NodeDef, Output, OutputSize
from calotype.workflow.size_estimate import IMAGES, measured_size, output_size


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

    def check_given(self, known: NodeDef, inputs: Mapping[str, Any]) -> None:
        """Refuse a node that is going to make too much, as far as it can be told from what it is given."""
        problems = [Problem(place, rule) for place, rule in self.over(known, inputs)]
        if known.makes is not None and not problems:
            given = measured_size(known, inputs)
            made = zip(known.outputs, known.makes(given), strict=True)
            problems += [
                problem
                for output, extent in made
                if extent is not None
                for problem in self._too_much(known, output, extent, _largest(given))
            ]
        if problems:
            raise RequestError(problems)

    def check_made(self, known: NodeDef, inputs: Mapping[str, Any], outputs: tuple[Any, ...]) -> None:
        """Refuse what a node has made of what it was given, if it is too much."""
        largest = _largest(measured_size(known, inputs))
        problems = [
            problem
            for output, value in zip(known.outputs, outputs, strict=True)
            if (extent := output_size(output.type, value)) is not None
            for problem in self._too_much(known, output, extent, largest)
        ]
        if problems:
            raise RequestError(problems)

    def over(self, known: NodeDef, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Inputs whose numbers say too much, and the rule."""
        width, height = inputs.get("width"), inputs.get("height")
        # Elsewhere they may be what a model is told, or a part of a picture.
        told = (
            OutputSize(1, width, height)
            if isinstance(width, int) and isinstance(height, int)
            else OutputSize()
        )
        if _makes_anew(known) and told.width * told.height > self.max_pixels:
            yield "width", _too_large(told, self.max_pixels)
        for place, limit in (("batch_size", self.max_count), ("steps", self.max_steps)):
            value = inputs.get(place)
            if isinstance(value, int) and value > limit:
                yield place, f"{value}, the limit here is {limit}"

    def _too_much(self, known: NodeDef, output: Output, extent: OutputSize, given: int) -> Iterator[Problem]:
        place = output.name or output.type
        if extent.count > self.max_count:
            rule = f"{extent.count} in one batch, the limit here is {self.max_count}; make fewer at a time"
            yield Problem(place, rule)
        most = self.max_pixels
        if output.is_sheet:
            most *= self.max_count
        elif any(declared.upload for declared in known.inputs):
            most = self.max_given_pixels
        elif output.type != LATENT:
            # A picture that may be read may be worked on, as long as it grows no larger.
            most = max(most, min(given, self.max_given_pixels))
        if extent.width * extent.height > most:
            yield Problem(place, f"{_too_large(extent, most)}; make it smaller")


def _makes_anew(known: NodeDef) -> bool:
    """Whether its width and height are those of a picture that it makes."""
    takes = any(declared.type in IMAGES for declared in known.inputs)
    makes = any(output.type in IMAGES for output in known.outputs)
    return makes and (known.makes is not None or not takes)


def _largest(given: Mapping[str, Any]) -> int:
    """Pixels of the largest picture or mask that a node is given."""
    return max((one.width * one.height for one in given.values() if isinstance(one, OutputSize)), default=0)


def _too_large(extent: OutputSize, limit: int) -> str:
    pixels = extent.width * extent.height
    return f"{extent.width}×{extent.height} is {pixels} pixels, the limit here is {limit}"
