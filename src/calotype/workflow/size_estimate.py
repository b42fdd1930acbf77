"""How much is in pictures, masks and latents: in a value that is there, and in what a graph is going to make.

Knows nothing of limits or of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calotype.workflow.graph import Graph, Link, Node
from calotype.workflow.node_api import IMAGE, LATENT, MASK, Input, NodeDef, OutputSize

IMAGES = (IMAGE, MASK, LATENT)
DEFAULT_FACTOR = 8
"""Pixels along one side of a latent's, where it does not say."""


def output_size(kind: str, value: object) -> OutputSize | None:
    """How much a value of a type holds; None if there is no telling."""
    factor = 1
    if kind == LATENT and isinstance(value, Mapping):
        factor, value = int(value.get("factor", DEFAULT_FACTOR)), value.get("samples")
    shape = getattr(value, "shape", None)
    if kind not in IMAGES or shape is None or len(shape) != (3 if kind == MASK else 4):
        return None
    height, width = shape[2:] if kind == LATENT else shape[1:3]
    return OutputSize(int(shape[0]), int(width) * factor, int(height) * factor)


def measured_size(known: NodeDef, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A node's inputs as its `makes` wants them: of pictures, masks and latents the extent."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        declared = known.input(name)
        if declared is not None and declared.type in IMAGES:
            found[name] = output_size(declared.type, value) or OutputSize()
        else:
            found[name] = value
    return found


def expected_size(
    graph: Graph, registry: Mapping[str, NodeDef], *, most: int
) -> dict[str, tuple[OutputSize, ...]]:
    """What each node of a graph, in the order they run, is going to make as far as can be told beforehand.

    Of what comes over a link nothing is known but how many pictures it has, which is never over `most`.
    """
    found: dict[str, tuple[OutputSize, ...]] = {}
    for name, node in graph.items():
        known = registry[node.class_type]
        linked = {
            place: found[link.node][link.output]
            for place, link in node.links()
            if link.output < len(found.get(link.node, ()))
        }
        made = _made(known, node, linked)
        found[name] = tuple(OutputSize(min(one.count, most), one.width, one.height) for one in made)
    return found


def _made(known: NodeDef, node: Node, linked: Mapping[str, OutputSize]) -> tuple[OutputSize, ...]:
    usual = OutputSize(max((extent.count for extent in linked.values()), default=1))
    if known.makes is not None:
        inputs = {
            declared.name: _given(declared, node.inputs[declared.name], linked)
            for declared in known.inputs
            if declared.name in node.inputs
        }
        try:
            made = known.makes(inputs)
            return tuple(made[number] or usual for number in range(len(known.outputs)))
        # A package's own words, about values that nobody knows yet.
        except Exception:
            return (usual,) * len(known.outputs)
    return (usual,) * len(known.outputs)


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
    """Pictures that the outputs of a graph will save, one for an output that takes none."""
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
