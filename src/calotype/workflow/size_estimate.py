"""Measures the size of images, masks and latents, and estimates the sizes that a graph will create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calotype.workflow.graph import Graph, Link, Node
from calotype.workflow.node_api import IMAGE, LATENT, MASK, Input, NodeDef, OutputSize

IMAGES = (IMAGE, MASK, LATENT)
DEFAULT_FACTOR = 8
"""Pixels per latent pixel along one side, if the latent does not state it."""


def output_size(kind: str, value: object) -> OutputSize | None:
    """The size of a value of this type, or None if it is unknown."""
    factor = 1
    if kind == LATENT and isinstance(value, Mapping):
        factor, value = int(value.get("factor", DEFAULT_FACTOR)), value.get("samples")
    shape = getattr(value, "shape", None)
    if kind not in IMAGES or shape is None or len(shape) != (3 if kind == MASK else 4):
        return None
    height, width = shape[2:] if kind == LATENT else shape[1:3]
    return OutputSize(int(shape[0]), int(width) * factor, int(height) * factor)


def measured_size(known: NodeDef, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A node's inputs as its `makes` expects them: sizes instead of images, masks and latents."""
    sizes_by_name: dict[str, Any] = {}
    for name, value in inputs.items():
        declared = known.input(name)
        if declared is not None and declared.type in IMAGES:
            sizes_by_name[name] = output_size(declared.type, value) or OutputSize()
        else:
            sizes_by_name[name] = value
    return sizes_by_name


def expected_size(
    graph: Graph, registry: Mapping[str, NodeDef], *, most: int
) -> dict[str, tuple[OutputSize, ...]]:
    """The estimated output sizes of each node of a graph, in execution order.

    Of a linked value only the number of images is known, which never exceeds `most`.
    """
    sizes_by_name: dict[str, tuple[OutputSize, ...]] = {}
    for name, node in graph.items():
        known = registry[node.class_type]
        linked = {
            place: sizes_by_name[link.node][link.output]
            for place, link in node.links()
            if link.output < len(sizes_by_name.get(link.node, ()))
        }
        sizes = _estimate(known, node, linked)
        sizes_by_name[name] = tuple(
            OutputSize(min(size.count, most), size.width, size.height) for size in sizes
        )
    return sizes_by_name


def _estimate(known: NodeDef, node: Node, linked: Mapping[str, OutputSize]) -> tuple[OutputSize, ...]:
    default = OutputSize(max((extent.count for extent in linked.values()), default=1))
    if known.makes is not None:
        inputs = {
            declared.name: _given(declared, node.inputs[declared.name], linked)
            for declared in known.inputs
            if declared.name in node.inputs
        }
        try:
            sizes = known.makes(inputs)
            return tuple(sizes[number] or default for number in range(len(known.outputs)))
        # A package's code may fail on values that are not known yet.
        except Exception:
            return (default,) * len(known.outputs)
    return (default,) * len(known.outputs)


def _given(declared: Input, given: object, linked: Mapping[str, OutputSize]) -> Any:
    if declared.type in IMAGES:
        return linked.get(declared.name, OutputSize())
    return declared.default if isinstance(given, Link) else given


def saved(
    graph: Graph,
    outputs: tuple[str, ...],
    registry: Mapping[str, NodeDef],
    made: Mapping[str, tuple[OutputSize, ...]],
) -> int:
    """The number of images that the outputs of a graph will save; an output without images counts as one."""
    total = 0
    for name in outputs:
        known = registry[graph[name].class_type]
        taken = [
            made[link.node][link.output].count
            for place, link in graph[name].links()
            if (declared := known.input(place)) is not None and declared.type in IMAGES
        ]
        total += max(1, sum(taken))
    return total
