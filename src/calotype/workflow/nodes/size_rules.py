"""Computes the output sizes of nodes whose outputs may be larger or more than their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from calotype.workflow.node_api import InputValues, OutputSize

Makes = Callable[[InputValues], tuple[OutputSize | None, ...]]


def of_numbers(inputs: InputValues) -> tuple[OutputSize]:
    return (OutputSize(inputs.get("batch_size", 1), inputs["width"], inputs["height"]),)


def as_much(name: str) -> Makes:
    return lambda inputs: (inputs[name],)


def scaled(name: str) -> Makes:
    """A side of 0 keeps the aspect ratio."""

    def makes(inputs: InputValues) -> tuple[OutputSize]:
        given, width, height = inputs[name], inputs["width"], inputs["height"]
        if width == 0 and height == 0:
            return (given,)
        if width == 0:
            width = round(given.width * height / max(1, given.height))
        elif height == 0:
            height = round(given.height * width / max(1, given.width))
        return (replace(given, width=width, height=height),)

    return makes


def scaled_by(name: str) -> Makes:
    def makes(inputs: InputValues) -> tuple[OutputSize]:
        given, times = inputs[name], inputs["scale_by"]
        return (replace(given, width=round(given.width * times), height=round(given.height * times)),)

    return makes


def padded(inputs: InputValues) -> tuple[OutputSize, OutputSize]:
    given = inputs["image"]
    width = given.width + inputs["left"] + inputs["right"]
    height = given.height + inputs["top"] + inputs["bottom"]
    return replace(given, width=width, height=height), OutputSize(1, width, height)


def repeated(inputs: InputValues) -> tuple[OutputSize]:
    given = inputs["samples"]
    return (replace(given, count=given.count * inputs["amount"]),)


def some(inputs: InputValues) -> tuple[OutputSize]:
    given = inputs["samples"]
    return (replace(given, count=min(given.count, inputs["length"])),)


def both(first: str, second: str) -> Makes:
    """Both counts, at the size of the first."""

    def makes(inputs: InputValues) -> tuple[OutputSize]:
        return (replace(inputs[first], count=inputs[first].count + inputs[second].count),)

    return makes


def sheet(_inputs: InputValues) -> tuple[OutputSize]:
    """One image of unknown size, which depends on the captions."""
    return (OutputSize(),)


def compared(inputs: InputValues) -> tuple[OutputSize, OutputSize]:
    given, presets = inputs["latent_image"], inputs["presets"].replace("\n", ",").split(",")
    number = sum(bool(name.strip()) for name in presets)
    return replace(given, count=given.count * number), OutputSize()
