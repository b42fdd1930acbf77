"""Collects the available nodes: Calotype's and those of installed packages.

A package provides nodes with an entry point in the group `calotype.nodes` that names a sequence of `NodeDef`.
A package that cannot be used is left out as a whole and recorded with the reason; the others still load.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, distributions

from calotype.workflow.node_api import NodeDef

GROUP = "calotype.nodes"
_BUILTIN_NODES = "calotype.workflow.nodes"


@dataclass(frozen=True)
class LeftOut:
    """A package whose nodes are not available, and why."""

    package: str
    reason: str


class Registry(Mapping[str, NodeDef]):
    """Nodes by name."""

    def __init__(self, nodes: Iterable[NodeDef] = (), left_out: Iterable[LeftOut] = ()) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.left_out = tuple(left_out)

    def __getitem__(self, name: str) -> NodeDef:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def load_registry() -> Registry:
    """Load Calotype's nodes and those of every installed package."""
    nodes: dict[str, NodeDef] = {node.name: node for node in importlib.import_module(_BUILTIN_NODES).NODES}
    left_out: list[LeftOut] = []
    for point in _entry_points(left_out):
        try:
            offered = _offered(point, nodes)
        # A package may raise anything on import, even SystemExit.
        except (Exception, SystemExit) as error:
            left_out.append(LeftOut(_package_label(point), f"{type(error).__name__}: {error}"))
            continue
        nodes |= {node.name: node for node in offered}
    return Registry(nodes.values(), left_out)


def _entry_points(left_out: list[LeftOut]) -> list[EntryPoint]:
    """Read entry points package by package, so that one with broken metadata does not hide the others."""
    found: dict[tuple[str, str], EntryPoint] = {}
    for package in distributions():
        try:
            # Of a package that is on the path twice, Python imports the first.
            found |= {
                (point.name, point.value): point
                for point in package.entry_points
                if point.group == GROUP and (point.name, point.value) not in found
            }
        except Exception as error:
            name = getattr(package, "_path", package)
            left_out.append(LeftOut(str(name), f"its entry points cannot be read: {error}"))
    return sorted(found.values(), key=lambda point: (point.name, point.value))


def _package_label(point: EntryPoint) -> str:
    package = point.dist.name if point.dist else "?"
    return f"{package} ({point.name} = {point.value})"


def _offered(point: EntryPoint, taken: Mapping[str, NodeDef]) -> list[NodeDef]:
    offered = point.load()
    if not isinstance(offered, Sequence) or not all(isinstance(node, NodeDef) for node in offered):
        raise TypeError(f"{point.value} is not a sequence of NodeDef but {type(offered).__name__}")
    names = [node.name for node in offered]
    twice = sorted({name for name in names if name in taken or names.count(name) > 1})
    if twice:
        raise ValueError(f"nodes of these names exist already: {', '.join(twice)}")
    return [replace(node, module=point.dist.name if point.dist else point.module) for node in offered]
