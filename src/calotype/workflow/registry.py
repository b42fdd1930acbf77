"""Which nodes there are: ours, and those of installed packages. Knows nothing of what they do.

A package offers nodes by an entry point in the group `calotype.nodes` that names a sequence of `NodeClass`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from calotype.workflow.interface import NodeClass


class Registry(Mapping[str, NodeClass]):
    """Nodes by name."""

    def __init__(self, nodes: Iterable[NodeClass] = ()) -> None:
        self._nodes = {node.name: node for node in nodes}

    def __getitem__(self, name: str) -> NodeClass:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)
