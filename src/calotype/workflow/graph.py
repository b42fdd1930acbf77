"""Parses a graph in API format into nodes and links, and orders nodes by dependency."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SHOWN_IN_A_CYCLE = 12


@dataclass(frozen=True)
class Link:
    """A reference to an output of another node."""

    node: str
    output: int


@dataclass(frozen=True)
class BadLink:
    """A malformed link; kept so that validation can report all of them."""

    value: object


@dataclass(frozen=True)
class Node:
    """One node: its inputs are values, links or bad links."""

    id: str
    class_type: str
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def links(self) -> list[tuple[str, Link]]:
        """The inputs that come from other nodes."""
        return [(name, value) for name, value in self.inputs.items() if isinstance(value, Link)]


Graph = Mapping[str, Node]


def parse(prompt: Mapping[str, Any]) -> tuple[dict[str, Node], dict[str, str]]:
    """The nodes of an API-format object, and the reason for each malformed one."""
    nodes: dict[str, Node] = {}
    malformed: dict[str, str] = {}
    for key, value in prompt.items():
        reason = _malformed_reason(value)
        if reason:
            malformed[key] = reason
        else:
            inputs = {name: _input(given) for name, given in value.get("inputs", {}).items()}
            nodes[key] = Node(key, value["class_type"], inputs)
    return nodes, malformed


def _malformed_reason(value: object) -> str | None:
    if not isinstance(value, dict):
        return "is not an object with class_type and inputs"
    if not isinstance(value.get("class_type"), str):
        return "has no class_type, the name of its node type"
    if not isinstance(value.get("inputs", {}), dict):
        return "has inputs that are not an object of names and values"
    return None


def _input(given: object) -> object:
    # No widget holds a list: a list is always a link.
    if not isinstance(given, list):
        return given
    match given:
        case [str() | int() as node, int() as output] if not isinstance(output, bool) and output >= 0:
            return Link(str(node), output)
        case _:
            return BadLink(given)


@dataclass(frozen=True)
class Cycle:
    """A link that leads back to a node which depends on it."""

    node: str
    input: str
    path: tuple[str, ...]
    """From the node back to itself; the middle of a long cycle is omitted."""


@dataclass(frozen=True)
class Walk:
    """The dependencies of some nodes: each node after those it needs."""

    order: tuple[str, ...]
    cycles: tuple[Cycle, ...]


def walk(graph: Graph, ends: Iterable[str]) -> Walk:
    """Everything that `ends` depend on, including themselves. Not recursive, because a chain may be long."""
    order: list[str] = []
    cycles: list[Cycle] = []
    position: dict[str, int] = {}
    """A node's index on the path; -1 once all its dependencies have been visited."""
    for end in ends:
        path = [end] if end not in position else []
        iterators = [_links(graph, end)] if path else []
        if path:
            position[end] = 0
        while path:
            step = next(iterators[-1], None)
            if step is None:
                done = path.pop()
                iterators.pop()
                position[done] = -1
                order.append(done)
                continue
            name, link = step
            if link.node not in graph:
                continue
            if link.node not in position:
                position[link.node] = len(path)
                path.append(link.node)
                iterators.append(_links(graph, link.node))
            elif position[link.node] >= 0:
                cycles.append(Cycle(path[-1], name, _shortened(path[position[link.node] :])))
    return Walk(tuple(order), tuple(cycles))


def _links(graph: Graph, node: str) -> Iterator[tuple[str, Link]]:
    return iter(graph[node].links())


def _shortened(path: list[str]) -> tuple[str, ...]:
    half = SHOWN_IN_A_CYCLE // 2
    middle = path if len(path) <= SHOWN_IN_A_CYCLE else [*path[:half], "…", *path[-half:]]
    return (path[-1], *middle)
