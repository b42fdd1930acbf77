"""Graphs as editors save them, turned into API format. The other way is `layout`.

What exists only for the eye or the hand is resolved here: reroutes, primitives, notes, muted and bypassed
nodes, subgraphs. Knows nodes only by their declarations, from which the order of widgets follows.
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
"""What an editor does to a number after each run; saved after the number, and no input."""
SEEDS = ("seed", "noise_seed")
"""Editors draw new numbers for inputs of these names whatever the node declares."""
DEEPEST = 16
MAX_SUBGRAPHS = 1000
_INSIDE_IN, _INSIDE_OUT = "-10", "-20"
"""The nodes that stand for a subgraph's own inputs and outputs inside it."""
_OWN = "-1"
"""In place of a node inside: the subgraph's own input."""


def to_prompt(workflow: object, registry: Mapping[str, NodeDef]) -> JSON:
    """The API format of an editor's file. Unknown nodes keep their name, for validation to report."""
    file = EditorFile.read(workflow)
    subgraphs = {one.id: one for one in file.definitions.subgraphs} if file.definitions else {}
    old_groups = [node for node in file.nodes if node.type.startswith(("workflow>", "workflow/"))]
    if old_groups:
        rule = "is a group node of an old editor; convert it to a subgraph or to its nodes there"
        raise RequestError([Problem(f"node {node.id}", f"{node.type!r} {rule}") for node in old_groups])
    top = _Scope(file, subgraphs)
    return {name: _converted(scope, node, registry) for name, scope, node in _runnable(top)}


def unnamed_values(workflow: object, registry: Mapping[str, NodeDef]) -> list[Problem]:
    """Nodes with values that `to_prompt` cannot carry over: files list values without the names of inputs.

    Only the declaration of a node has the names, so this concerns unknown nodes.
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
            rule = f"{node.type!r} is not known here, so the names of its {len(lost)} values are not either"
            fix = "install the package that declares it, or export API format in the editor"
            problems.append(Problem(f"node {name}", f"{rule}; {fix}", lost))
    return problems


def _left_over(names: Sequence[str], values: Sequence[Any]) -> Sequence[Any]:
    """Values that no name stands for; what an editor does to seeds is no value of a node."""
    *_, place = (0, *(place for place, _, _ in _placed(names, values, set(SEEDS))))
    return values[place:]


@dataclass(frozen=True)
class _End:
    """Where a link comes from: an output of a node, or a value where the source is only the editor's."""

    node: str = ""
    output: int = 0
    value: Any = None


class _Scope:
    """One level of nodes and, for a subgraph, the node it stands for and the level that is on."""

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
        """The level below a node that is a subgraph."""
        subgraph = self.subgraphs.get(node.type)
        if subgraph is None:
            return None
        if node.id not in self._below:
            if self.prefix.count(":") >= DEEPEST or next(self.numbers) >= MAX_SUBGRAPHS:
                rule = f"subgraphs lie more than {DEEPEST} deep or hold themselves, or are more than "
                rule += f"{MAX_SUBGRAPHS}; unpack some in the editor"
                raise RequestError([Problem(f"node {self.prefix}{node.id}", rule)])
            self._below[node.id] = _Scope(subgraph, self.subgraphs, (self, node))
        return self._below[node.id]

    def leaving(self, output: int) -> int | None:
        """The link inside a subgraph that ends at its output of that number."""
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
    """Where a link really comes from, through all that is only the editor's; None if from nowhere."""
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
    """What comes into a subgraph by its input of that number: a value written on its node, or a link."""
    if slot >= len(instance.inputs):
        return None, None
    socket, values = instance.inputs[slot], instance.listed_values
    if socket.link is not None or not socket.widget:
        return None, socket.link
    # A widget of a node inside has a place too, without a value: that is inside.
    shown = instance.properties.shown
    if shown is None:
        shown = tuple([_OWN, each.name] for each in instance.inputs if each.widget)
    place = next((number for number, one in enumerate(shown) if one[:2] == [_OWN, socket.name]), len(values))
    return (values[place] if place < len(values) else None), None


def _passed_through(node: EditorNode, output: int) -> int | None:
    """The link that a reroute or bypassed node hands on: of the output's type, at its place if possible."""
    if node.type == REROUTE:
        return node.inputs[0].link if node.inputs else None
    kind = node.outputs[output].type if output < len(node.outputs) else ANY
    nearest = (*node.inputs[output : output + 1], *node.inputs)
    return next((socket.link for socket in nearest if kind in (socket.type, ANY)), None)


def _converted(scope: _Scope, node: EditorNode, registry: Mapping[str, NodeDef]) -> JSON:
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
    # Newer files list every widget, in the order the node had then; older ones only those with a link.
    saved = [socket.widget.name for socket in node.inputs if socket.widget]
    if set(saved) >= set(names):
        names = saved
    drawn = {one.name for one in declared if one.control_after_generate} | set(SEEDS)
    return dict(_paired(names, values, drawn))


def _paired(names: Sequence[str], values: Sequence[Any], drawn: set[str]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for _, name, value in _placed(names, values, drawn) if value is not None)


def _placed(names: Sequence[str], values: Sequence[Any], drawn: set[str]) -> Iterator[tuple[int, str, Any]]:
    """Each name with its value, and the place in the list where the next one's value is."""
    place = 0
    for after, name in enumerate(names, 1):
        if place >= len(values):
            return
        value = values[place]
        place += 1
        follows = values[place] if place < len(values) else None
        # Very old files have a truth value in its place, so that there is one value too many.
        spare = isinstance(follows, bool) and len(values) - place > len(names) - after
        if name in drawn and (spare or follows in CONTROLS):
            place += 1
        yield place, name, value


def widgets_of(node: NodeDef) -> list[Input]:
    """The inputs an editor shows as widgets, in its order: required ones first."""
    return sorted((one for one in node.inputs if one.is_widget), key=lambda one: one.optional)
