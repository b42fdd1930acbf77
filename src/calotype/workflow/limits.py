"""Checks the size of what nodes create against limits, before and after they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.workflow.node_api import LATENT, NodeDef, Output, OutputSize
from calotype.workflow.size_estimate import IMAGES, measured_size, output_size


@dataclass(frozen=True)
class GraphLimits:
    """Limits of one image and of one batch."""

    max_pixels: int
    """Width times height of an output; for a LATENT, of its image."""
    max_count: int
    """Images in one batch."""
    max_steps: int
    max_given_pixels: int
    """Width times height of an image that a node reads."""

    def check_given(self, known: NodeDef, inputs: Mapping[str, Any]) -> None:
        """Raise RequestError if a node's outputs would exceed the limits, as far as its inputs tell."""
        problems = [Problem(place, rule) for place, rule in self.over(known, inputs)]
        if known.makes is not None and not problems:
            given = measured_size(known, inputs)
            sizes = zip(known.outputs, known.makes(given), strict=True)
            problems += [
                problem
                for output, extent in sizes
                if extent is not None
                for problem in self._too_much(known, output, extent, _largest(given))
            ]
        if problems:
            raise RequestError(problems)

    def check_made(self, known: NodeDef, inputs: Mapping[str, Any], outputs: tuple[Any, ...]) -> None:
        """Raise RequestError if a node's outputs exceed the limits."""
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
        """Inputs whose values exceed the limits, with the rule."""
        width, height = inputs.get("width"), inputs.get("height")
        # In other nodes, width and height may be conditioning values or a part of an image.
        size = (
            OutputSize(1, width, height)
            if isinstance(width, int) and isinstance(height, int)
            else OutputSize()
        )
        if _creates_image(known) and size.width * size.height > self.max_pixels:
            yield "width", _too_large(size, self.max_pixels)
        for place, limit in (("batch_size", self.max_count), ("steps", self.max_steps)):
            value = inputs.get(place)
            if isinstance(value, int) and value > limit:
                yield place, f"{value}, the limit here is {limit}"

    def _too_much(self, known: NodeDef, output: Output, extent: OutputSize, given: int) -> Iterator[Problem]:
        place = output.name or output.type
        if extent.count > self.max_count:
            rule = f"{extent.count} in one batch, the limit here is {self.max_count}; make fewer at a time"
            yield Problem(place, rule)
        max_pixels = self.max_pixels
        if output.is_sheet:
            max_pixels *= self.max_count
        elif any(declared.upload for declared in known.inputs):
            max_pixels = self.max_given_pixels
        elif output.type != LATENT:
            # Nodes may process any image that may be read, as long as it does not grow.
            max_pixels = max(max_pixels, min(given, self.max_given_pixels))
        if extent.width * extent.height > max_pixels:
            yield Problem(place, f"{_too_large(extent, max_pixels)}; make it smaller")


def _creates_image(known: NodeDef) -> bool:
    """Whether the node's width and height are those of an image that it creates."""
    takes = any(declared.type in IMAGES for declared in known.inputs)
    makes = any(output.type in IMAGES for output in known.outputs)
    return makes and (known.makes is not None or not takes)


def _largest(given: Mapping[str, Any]) -> int:
    """Pixels of the largest image, mask or latent among a node's inputs."""
    sizes = (size for size in given.values() if isinstance(size, OutputSize))
    return max((size.width * size.height for size in sizes), default=0)


def _too_large(extent: OutputSize, limit: int) -> str:
    pixels = extent.width * extent.height
    return f"{extent.width}×{extent.height} is {pixels} pixels, the limit here is {limit}"
