"""Converts a graph from API format to an editor's file: columns by dependency, sockets, widgets in order.

`import_editor` is the inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calotype.workflow.graph import Graph, Link, Node, parse, walk
from calotype.workflow.import_editor import SEEDS, widgets_of
from calotype.workflow.node_api import ANY, Input, NodeDef

JSON = dict[str, Any]
WIDTH, GAP = 320, 80
_LOOKS = ("pos", "size", "title", "color", "bgcolor", "shape", "flags")
_TITLE, _ROW, _TEXT, _PICTURE = 40, 26, 120, 240


def to_workflow(
    prompt: Mapping[str, Any], registry: Mapping[str, NodeDef], like: Mapping[str, Any] | None = None
) -> JSON:
    """Lay out a graph as an editor's file; nodes that exist in the editor's file `like` keep its positions.

    Entries that are not nodes are omitted.
    """
    graph, _ = parse(prompt)
    layout = _Layout(graph, registry)
    nodes = [layout.node(name, (prompt[name].get("_meta") or {}).get("title")) for name in graph]
    for number, (node, place) in enumerate(_positions(graph, nodes)):
        node |= {"pos": place, "order": number}
    before = {str(node.get("id")): node for node in (like or {}).get("nodes", ()) if isinstance(node, dict)}
    for node in nodes:
        old = before.get(str(node["id"]), {})
        node |= {key: old[key] for key in _LOOKS if key in old}
    return {
        "last_node_id": max((int(name) for name in graph if _is_number(name)), default=0),
        "last_link_id": len(layout.links),
        "nodes": nodes,
        "links": layout.links,
        "groups": (like or {}).get("groups", []),
        "config": {},
        "extra": {},
        "version": 0.4,
    }


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _id(name: str) -> int | str:
    return int(name) if _is_number(name) else name


@dataclass
class _Layout:
    """Builds nodes and numbers links in the order of their inputs; each output lists its links."""

    graph: Graph
    registry: Mapping[str, NodeDef]
    links: list[list[Any]] = field(default_factory=list)
    _links_by_output: dict[Link, list[int]] = field(default_factory=dict)

    def node(self, name: str, title: str | None) -> JSON:
        node = self.graph[name]
        known = self.registry.get(node.class_type)
        linkable = self._linkable(node, known)
        sockets = [self._socket(node, slot, declared) for slot, declared in enumerate(linkable)]
        values = _values(node, known)
        return {
            "id": _id(name),
            "type": node.class_type,
            "title": title or (known.title if known else "") or node.class_type,
            "pos": [0, 0],
            "size": [WIDTH, _height(known, sockets, values)],
            "flags": {},
            "order": 0,
            "mode": 0,
            "inputs": sockets,
            "outputs": self._outputs(name, known),
            "properties": {"Node name for S&R": node.class_type},
            "widgets_values": values,
        }

    def _linkable(self, node: Node, known: NodeDef | None) -> list[Input]:
        """Inputs with a socket: all that are not widgets, and linked widgets."""
        linked = {name for name, _ in node.links()}
        if known is None:
            return [Input(name, ANY) for name in node.inputs if name in linked]
        return [one for one in known.inputs if not one.is_widget or one.name in linked]

    def _socket(self, node: Node, slot: int, declared: Input) -> JSON:
        given, number = node.inputs.get(declared.name), None
        if isinstance(given, Link) and given.node in self.graph:
            number = len(self.links) + 1
            self.links.append([number, _id(given.node), given.output, _id(node.id), slot, declared.type])
            self._links_by_output.setdefault(given, []).append(number)
        socket: JSON = {"name": declared.name, "type": declared.type, "link": number}
        return socket | ({"widget": {"name": declared.name}} if declared.is_widget else {})

    def _outputs(self, name: str, known: NodeDef | None) -> list[JSON]:
        # The same list objects to which later nodes append their links.
        links = [
            self._links_by_output.setdefault(Link(name, slot), [])
            for slot in range(len(known.outputs) if known else 0)
        ]
        declared = known.outputs if known else ()
        return [
            {"name": out.name or out.type, "type": out.type, "links": numbers, "slot_index": slot}
            for slot, (out, numbers) in enumerate(zip(declared, links, strict=True))
        ]


def _values(node: Node, known: NodeDef | None) -> Any:
    """Widget values in the editor's order, or by name if the order is unknown."""
    written = {name: value for name, value in node.inputs.items() if not isinstance(value, Link)}
    if known is None:
        return written
    values: list[Any] = []
    for one in widgets_of(known):
        values.append(written.get(one.name, one.default))
        if one.control_after_generate or one.name in SEEDS:
            values.append("fixed")
        if one.upload:
            values.append("image")
    return values


def _height(known: NodeDef | None, sockets: list[JSON], values: Any) -> int:
    outputs = len(known.outputs) if known else 0
    texts = sum(one.multiline for one in known.inputs) if known else 0
    pictures = sum(one.upload for one in known.inputs) if known else 0
    rows = max(len(sockets), outputs) + len(values)
    return _TITLE + _ROW * rows + _TEXT * texts + _PICTURE * pictures


def _positions(graph: Graph, nodes: list[JSON]) -> list[tuple[JSON, list[int]]]:
    """Node positions: each node one column right of its dependencies, vertically near them."""
    order = walk(graph, graph).order
    by_name = dict(zip(graph, nodes, strict=True))
    column: dict[str, int] = {}
    middle: dict[str, float] = {}
    below: dict[int, int] = {}
    for name in order:
        before = [link.node for _, link in graph[name].links() if link.node in column]
        column[name] = max((column[one] + 1 for one in before), default=0)
    placed: list[tuple[JSON, list[int]]] = []

    def sort_key(name: str) -> tuple[int, float]:
        before = [middle[link.node] for _, link in graph[name].links() if link.node in middle]
        return column[name], sum(before) / len(before) if before else 0.0

    for level in sorted(set(column.values())):
        for name in sorted((one for one in order if column[one] == level), key=sort_key):
            top, height = below.get(level, 0), by_name[name]["size"][1]
            middle[name] = top + height / 2
            below[level] = top + height + GAP // 2
            placed.append((by_name[name], [level * (WIDTH + GAP), top]))
    return placed
