"""Converts graphs from editors' files to API format; `export_editor` is the inverse.

It resolves everything that only editors have: reroutes, primitives, notes, muted and bypassed nodes,
subgraphs. The order of widgets follows from the declarations of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.workflow.editor_schema import (
    BYPASSED,
    MUTED,
    EditorFile,
    EditorLink,
    EditorNode,
    Level,
    Subgraph,
)
from calotype.workflow.node_api import ANY, Input, NodeDef

JSON = dict[str, Any]
REROUTE, PRIMITIVE = "Reroute", "PrimitiveNode"
NOTES = ("Note", "MarkdownNote")
CONTROLS = ("fixed", "increment", "decrement", "randomize", "increment-wrap")
"""What an editor does to a number after each run; saved after the number, but not an input."""
SEEDS = ("seed", "noise_seed")
"""Editors randomize inputs of these names, whatever the node declares."""
MAX_DEPTH = 16
MAX_SUBGRAPHS = 1000
_INSIDE_IN, _INSIDE_OUT = "-10", "-20"
"""Ids of the inner nodes that represent a subgraph's inputs and outputs."""
_OWN = "-1"
"""Stands for the subgraph's own input instead of an inner node."""


def to_prompt(workflow: object, registry: Mapping[str, NodeDef]) -> JSON:
    """Convert an editor's file to API format. Unknown nodes keep their name; validation reports them."""
    file = EditorFile.read(workflow)
    subgraphs = {graph.id: graph for graph in file.definitions.subgraphs} if file.definitions else {}
    old_groups = [node for node in file.nodes if node.type.startswith(("workflow>", "workflow/"))]
    if old_groups:
        rule = "is a group node of an old editor; convert it there to a subgraph or to its nodes"
        raise RequestError([Problem(f"node {node.id}", f"{node.type!r} {rule}") for node in old_groups])
    top = _Scope(file, subgraphs)
    return {name: _convert_node(scope, node, registry) for name, scope, node in _runnable(top)}


def unnamed_values(workflow: object, registry: Mapping[str, NodeDef]) -> list[Problem]:
    """The unknown nodes whose values `to_prompt` cannot convert.

    Files list values without the names of inputs, which only the declaration of a node has.
    """
    file = EditorFile.read(workflow)
    subgraphs = {one.id: one for one in file.definitions.subgraphs} if file.definitions else {}
    problems = []
    for name, _, node in _runnable(_Scope(file, subgraphs)):
        if node.type in registry:
            continue
        named = [socket.name for socket in node.inputs if socket.widget]
        lost = [value for value in _left_over(named, node.listed_values) if value is not None]
        if lost:
            rule = f"{node.type!r} is unknown here, and so are the names of its {len(lost)} values"
            fix = "install the package that declares it, or export API format in the editor"
            problems.append(Problem(f"node {name}", f"{rule}; {fix}", lost))
    return problems


def _left_over(names: Sequence[str], values: Sequence[Any]) -> Sequence[Any]:
    """Values without a name, except what an editor does to seeds."""
    *_, index = (0, *(index for index, _, _ in _placed(names, values, set(SEEDS))))
    return values[index:]


@dataclass(frozen=True)
class _End:
    """The source of a link: an output of a node, or a value if the source exists only in the editor."""

    node: str = ""
    output: int = 0
    value: Any = None


class _Scope:
    """One level of nodes and, for a subgraph, the node that represents it and that node's level."""

    def __init__(
        self,
        level: Level,
        subgraphs: Mapping[str, Subgraph],
        outside: tuple[_Scope, EditorNode] | None = None,
    ) -> None:
        self.nodes = {node.id: node for node in level.nodes}
        self.links: dict[int, EditorLink] = {link.id: link for link in level.links}
        self.subgraphs = subgraphs
        self.outside = outside
        self.prefix: str = f"{outside[0].prefix}{outside[1].id}:" if outside else ""
        self.numbers: Iterator[int] = outside[0].numbers if outside else count()
        self._below: dict[str, _Scope] = {}

    def inside(self, node: EditorNode) -> _Scope | None:
        """The level of a subgraph node, or None for other nodes."""
        subgraph = self.subgraphs.get(node.type)
        if subgraph is None:
            return None
        if node.id not in self._below:
            if self.prefix.count(":") >= MAX_DEPTH or next(self.numbers) >= MAX_SUBGRAPHS:
                rule = (
                    f"subgraphs are nested more than {MAX_DEPTH} deep, contain themselves or are more than "
                )
                rule += f"{MAX_SUBGRAPHS}; unpack some in the editor"
                raise RequestError([Problem(f"node {self.prefix}{node.id}", rule)])
            self._below[node.id] = _Scope(subgraph, self.subgraphs, (self, node))
        return self._below[node.id]

    def leaving(self, output: int) -> int | None:
        """The inner link that ends at this output of the subgraph."""
        ends = (
            link.id
            for link in self.links.values()
            if (link.target_id, link.target_slot) == (_INSIDE_OUT, output)
        )
        return next(ends, None)


def _runnable(scope: _Scope) -> Iterator[tuple[str, _Scope, EditorNode]]:
    for node in scope.nodes.values():
        if node.mode in (MUTED, BYPASSED) or node.type in (REROUTE, PRIMITIVE, *NOTES):
            continue
        inside = scope.inside(node)
        if inside:
            yield from _runnable(inside)
        else:
            yield scope.prefix + node.id, scope, node


def _source(scope: _Scope, number: int | None) -> _End | None:
    """The source of a link, resolved through everything that only editors have; None without a source."""
    seen: set[tuple[str, int]] = set()
    while number in scope.links and (scope.prefix, number) not in seen:
        seen.add((scope.prefix, number))
        link = scope.links[number]
        if link.origin_id == _INSIDE_IN and scope.outside:
            scope, instance = scope.outside
            value, number = _entering(instance, link.origin_slot)
            if value is not None:
                return _End(value=value)
            continue
        node = scope.nodes.get(link.origin_id)
        if node is None or node.mode == MUTED:
            return None
        if node.type == PRIMITIVE:
            return _End(value=next(iter(node.listed_values), None))
        inside = None if node.mode == BYPASSED else scope.inside(node)
        if inside:
            scope, number = inside, inside.leaving(link.origin_slot)
        elif node.type == REROUTE or node.mode == BYPASSED:
            number = _passed_through(node, link.origin_slot)
        else:
            return _End(scope.prefix + node.id, link.origin_slot)
    return None


def _entering(instance: EditorNode, slot: int) -> tuple[Any, int | None]:
    """The value or link that enters a subgraph at this input."""
    if slot >= len(instance.inputs):
        return None, None
    socket, values = instance.inputs[slot], instance.listed_values
    if socket.link is not None or not socket.widget:
        return None, socket.link
    # A widget of an inner node has a position too, but its value is stored on the inner node.
    shown = instance.properties.shown
    if shown is None:
        shown = tuple([_OWN, item.name] for item in instance.inputs if item.widget)
    own = [_OWN, socket.name]
    index = next((number for number, pair in enumerate(shown) if pair[:2] == own), len(values))
    return (values[index] if index < len(values) else None), None


def _passed_through(node: EditorNode, output: int) -> int | None:
    """The link that a reroute or bypassed node forwards: of the output's type, at its index if possible."""
    if node.type == REROUTE:
        return node.inputs[0].link if node.inputs else None
    kind = node.outputs[output].type if output < len(node.outputs) else ANY
    nearest = (*node.inputs[output : output + 1], *node.inputs)
    return next((socket.link for socket in nearest if kind in (socket.type, ANY)), None)


def _convert_node(scope: _Scope, node: EditorNode, registry: Mapping[str, NodeDef]) -> JSON:
    known = registry.get(node.type)
    inputs = _widget_values(node, known)
    for socket in node.inputs:
        end = _source(scope, socket.link)
        if end and end.node:
            inputs[socket.name] = [end.node, end.output]
        elif end and end.value is not None:
            inputs[socket.name] = end.value
    title = node.title or (known.title if known else "") or node.type
    return {"class_type": node.type, "inputs": inputs, "_meta": {"title": title}}


def _widget_values(node: EditorNode, known: NodeDef | None) -> JSON:
    values = node.widgets_values
    declared = widgets_of(known) if known else []
    names = [one.name for one in declared]
    if isinstance(values, dict):
        return {name: values[name] for name in names or values if values.get(name) is not None}
    # Newer files list every widget in the node's order at that time; older ones only linked widgets.
    saved = [socket.widget.name for socket in node.inputs if socket.widget]
    if set(saved) >= set(names):
        names = saved
    randomized = {item.name for item in declared if item.control_after_generate} | set(SEEDS)
    return dict(_paired(names, values, randomized))


def _paired(names: Sequence[str], values: Sequence[Any], randomized: set[str]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for _, name, value in _placed(names, values, randomized) if value is not None)


def _placed(
    names: Sequence[str], values: Sequence[Any], randomized: set[str]
) -> Iterator[tuple[int, str, Any]]:
    """Each name with its value, and the list index of the next name's value."""
    index = 0
    for after, name in enumerate(names, 1):
        if index >= len(values):
            return
        value = values[index]
        index += 1
        follows = values[index] if index < len(values) else None
        # Very old files have a boolean instead of the control, so there is one value too many.
        spare = isinstance(follows, bool) and len(values) - index > len(names) - after
        if name in randomized and (spare or follows in CONTROLS):
            index += 1
        yield index, name, value


def widgets_of(node: NodeDef) -> list[Input]:
    """The inputs that an editor shows as widgets, in its order: required ones first."""
    return sorted((one for one in node.inputs if one.is_widget), key=lambda one: one.optional)
