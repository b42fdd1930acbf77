"""Validates a graph before it runs and reports all problems at once, in the format of the API.

As in ComfyUI, an output can run if its own part of the graph is valid, even if another's is not: `outputs`
are the valid ones, and `error` is set only if none is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from calotype.workflow.graph import BadLink, Cycle, Graph, Link, Node, Walk, parse, walk
from calotype.workflow.input_coercion import RefusedValueError, accepted, nearest, short
from calotype.workflow.node_api import ANY, COMBO, Catalogue, Input, NodeDef
from calotype.workflow.object_info import choices_of, describe_input

MAX_SUGGESTIONS = 100
_MESSAGES = {
    "bad_linked_input": "A link has no valid source",
    "custom_validation_failed": "The node rejects these values",
    "dependency_cycle": "The node depends on itself",
    "exception_during_validation": "The node's package failed to validate it",
    "invalid_input_type": "A value has the wrong type",
    "invalid_prompt": "The node is malformed or unknown",
    "required_input_missing": "A required input is missing",
    "return_type_mismatch": "A link connects two different types",
    "value_bigger_than_max": "A value is too large",
    "value_not_in_list": "A value is not among the choices",
    "value_smaller_than_min": "A value is too small",
}


class Fault(TypedDict):
    """One problem, as clients receive it."""

    type: str
    message: str
    details: str
    extra_info: dict[str, Any]


class NodeFaults(TypedDict):
    """The problems of one node, and the outputs that they prevent."""

    errors: list[Fault]
    dependent_outputs: list[str]
    class_type: str


@dataclass(frozen=True)
class Validation:
    """The nodes that may run, and the problems of the others."""

    graph: Graph
    """Converted values with defaults filled in and without undeclared inputs."""
    outputs: tuple[str, ...]
    error: Fault | None
    node_errors: dict[str, NodeFaults]

    @property
    def sound(self) -> bool:
        """Whether there are no problems."""
        return self.error is None and not self.node_errors

    def as_dict(self) -> dict[str, Any]:
        """The body of an error response."""
        return {"error": self.error, "node_errors": self.node_errors}

    def lines(self) -> list[str]:
        """One line per problem, for people."""
        found = [
            f"node {node} ({faults['class_type']}): {fault['details']}"
            for node, faults in self.node_errors.items()
            for fault in faults["errors"]
        ]
        if not found and self.error:
            return [f"{self.error['message']}: {self.error['details']}"]
        return found


def validate(
    prompt: object,
    registry: Mapping[str, NodeDef],
    catalogue: Catalogue,
    only: Collection[str] | None = None,
) -> Validation:
    """Validate a graph in API format; `only` are the nodes to run, by default all outputs."""
    if not isinstance(prompt, dict) or not prompt:
        return _refused("invalid_prompt", "The graph is empty", "it must be an object of nodes by id")
    nodes, malformed = parse(prompt)
    checker = _Checker(registry, catalogue)
    for name, reason in malformed.items():
        checker.report(name, "invalid_prompt", f"it {reason}")
    for node in nodes.values():
        if node.class_type not in registry:
            rule = f"there is no node {node.class_type!r}{checker.nearest(node.class_type, registry)}"
            checker.report(node.id, "invalid_prompt", rule, {"class_type": node.class_type})
    fatal = bool(checker.faults)
    graph = {node.id: checker.declared(node) for node in nodes.values()}
    ends = _ends(graph, registry, only)
    missing = [node for node in only or () if node not in prompt]
    if missing:
        rule = f"{', '.join(missing)} not among the nodes; {nearest(missing[0], nodes)}"
        return _refused("invalid_prompt", "No such node to run", rule)
    if not ends and not fatal:
        kinds = sorted(name for name, node in registry.items() if node.is_output)
        return _refused("prompt_no_outputs", "The graph has no outputs", f"add one of: {', '.join(kinds)}")
    reached = walk(graph, ends)
    for name in reached.order:
        graph[name] = checker.checked(graph, graph[name])
    for cycle in reached.cycles:
        checker.report_cycle(cycle)
    return _outcome(graph, nodes, ends, reached, checker.faults, fatal)


def _ends(graph: Graph, registry: Mapping[str, NodeDef], only: Collection[str] | None) -> tuple[str, ...]:
    def is_end(node: Node) -> bool:
        known = registry.get(node.class_type)
        return known is not None and (known.is_output if only is None else node.id in only)

    return tuple(name for name, node in graph.items() if is_end(node))


def _refused(kind: str, message: str, details: str) -> Validation:
    return Validation({}, (), Fault(type=kind, message=message, details=details, extra_info={}), {})


def _outcome(
    graph: dict[str, Node],
    nodes: Mapping[str, Node],
    ends: tuple[str, ...],
    reached: Walk,
    faults: Mapping[str, list[Fault]],
    fatal: bool,
) -> Validation:
    dependents = _dependent_outputs(graph, ends, reached)
    bad = 0
    node_errors: dict[str, NodeFaults] = {}
    for name, found in faults.items():
        bad |= dependents.get(name, 0)
        dependent = [end for number, end in enumerate(ends) if dependents.get(name, 0) >> number & 1]
        kind = nodes[name].class_type if name in nodes else ""
        node_errors[name] = NodeFaults(errors=found, dependent_outputs=dependent, class_type=kind)
    good = () if fatal else tuple(end for number, end in enumerate(ends) if not bad >> number & 1)
    error = None
    if not good:
        details = [f"node {name}: {one['details']}" for name, found in faults.items() for one in found]
        error = Fault(
            type="invalid_prompt" if fatal else "prompt_outputs_failed_validation",
            message="Some nodes are unknown" if fatal else "No output of the graph can run",
            details="; ".join(details),
            extra_info={},
        )
    return Validation({name: graph[name] for name in reached.order}, good, error, node_errors)


def _dependent_outputs(graph: Graph, ends: Sequence[str], reached: Walk) -> dict[str, int]:
    """A bit mask of the outputs that depend on each node: a large graph has too many pairs to list."""
    dependents = dict.fromkeys(reached.order, 0)
    for number, end in enumerate(ends):
        dependents[end] |= 1 << number
    for name in reversed(reached.order):
        for _, link in graph[name].links():
            if link.node in dependents:
                dependents[link.node] |= dependents[name]
    return dependents


@dataclass
class _Checker:
    """Collects faults, and reads each list of names only once."""

    registry: Mapping[str, NodeDef]
    catalogue: Catalogue
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    _lists: dict[object, list[str]] = field(default_factory=dict)
    _near: dict[tuple[str, int], str] = field(default_factory=dict)

    def report(self, node: str, kind: str, details: str, extra: dict[str, Any] | None = None) -> None:
        fault = Fault(type=kind, message=_MESSAGES[kind], details=details, extra_info=extra or {})
        self.faults.setdefault(node, []).append(fault)

    def nearest(self, name: str, known: Collection[str]) -> str:
        """Suggest similar names; only for the first 100 names, because comparing many names takes long."""
        key = name, id(known)
        if key not in self._near:
            if len(self._near) >= MAX_SUGGESTIONS:
                return ""
            self._near[key] = f"; {nearest(name, known)}"
        return self._near[key]

    def report_cycle(self, cycle: Cycle) -> None:
        details = f"{cycle.input}: a link that leads back to the node itself: {' ← '.join(cycle.path)}"
        self.report(cycle.node, "dependency_cycle", details, {"input_name": cycle.input})

    def declared(self, node: Node) -> Node:
        """The node without undeclared inputs: old files have some, and nothing should run for them."""
        known = self.registry.get(node.class_type)
        if known is None:
            return replace(node, inputs={})
        return replace(
            node, inputs={one.name: node.inputs[one.name] for one in known.inputs if one.name in node.inputs}
        )

    def checked(self, graph: Graph, node: Node) -> Node:
        """The node with its converted values; reports invalid ones."""
        known = self.registry.get(node.class_type)
        if known is None:
            return node
        inputs: dict[str, Any] = {}
        before = len(self.faults.get(node.id, ()))
        for declared in known.inputs:
            given = node.inputs.get(declared.name)
            if given is None:
                if declared.default is not None:
                    inputs[declared.name] = declared.default
                elif not declared.optional:
                    self._report_input(node, declared, "required_input_missing", "is missing")
                continue
            inputs[declared.name] = self._input(graph, node, declared, given)
        if known.check and len(self.faults.get(node.id, ())) == before:
            self._run_node_check(known.check, node, inputs)
        return replace(node, inputs=inputs)

    def _input(self, graph: Graph, node: Node, declared: Input, given: object) -> object:
        if isinstance(given, Link):
            self._check_link(graph, node, declared, given)
            return given
        if isinstance(given, BadLink) or not declared.is_widget:
            value = given.value if isinstance(given, BadLink) else given
            rule = f"{short(value)} is not a link; a link is [node id, output number]"
            self._report_input(node, declared, "bad_linked_input", rule, received_value=value)
            return given
        choices = self.choices(declared)
        try:
            return accepted(declared, given, choices)
        except RefusedValueError as refused:
            near = self.nearest(str(given), choices) if refused.kind == "value_not_in_list" else ""
            self._report_input(node, declared, refused.kind, refused.rule + near, received_value=given)
            return given

    def choices(self, declared: Input) -> list[str]:
        """The choices of a COMBO, listed once."""
        if declared.type != COMBO:
            return []
        # Lists of names are cached by value, functions by identity.
        key = declared.choices if callable(declared.choices) else tuple(declared.choices or ())
        if key not in self._lists:
            self._lists[key] = choices_of(declared, self.catalogue)
        return self._lists[key]

    def _check_link(self, graph: Graph, node: Node, declared: Input, link: Link) -> None:
        source = graph.get(link.node)
        extra = {"received_value": [link.node, link.output], "linked_node": [link.node, link.output]}
        if source is None:
            if link.node not in self.faults:
                rule = f"is linked to node {link.node!r}, which is not in the graph"
                self._report_input(node, declared, "bad_linked_input", rule, **extra)
            return
        known = self.registry.get(source.class_type)
        if known is None:
            return
        if link.output >= len(known.outputs):
            rule = f"is linked to output {link.output} of node {link.node} ({known.name}), which has "
            rule += ", ".join(f"{number} {one.type}" for number, one in enumerate(known.outputs)) or "none"
            self._report_input(node, declared, "bad_linked_input", rule, **extra)
            return
        sent = known.outputs[link.output].type
        if not fits(sent, declared.type):
            rule = f"takes {declared.type}, output {link.output} of node {link.node} ({known.name}) is {sent}"
            self._report_input(node, declared, "return_type_mismatch", rule, received_type=sent, **extra)

    def _run_node_check(
        self, check: Callable[[Catalogue, Mapping[str, Any]], str | None], node: Node, inputs: dict[str, Any]
    ) -> None:
        written = {name: value for name, value in inputs.items() if not isinstance(value, Link)}
        try:
            problem = check(self.catalogue, written)
        except (Exception, SystemExit) as error:
            self.report(node.id, "exception_during_validation", f"{type(error).__name__}: {error}")
            return
        if problem:
            self.report(node.id, "custom_validation_failed", problem)

    def _report_input(self, node: Node, declared: Input, kind: str, rule: str, **extra: object) -> None:
        config = describe_input(declared, self.catalogue) if declared.type != COMBO else [COMBO, {}]
        information = {"input_name": declared.name, "input_config": config, **_as_json(extra)}
        self.report(node.id, kind, f"{declared.name}: {rule}", information)


def _as_json(extra: dict[str, object]) -> dict[str, object]:
    """The extra information, with values that JSON lacks as text: Python reads NaN but clients do not."""
    try:
        json.dumps(extra, allow_nan=False)
    except ValueError:
        return {name: short(value) for name, value in extra.items()}
    return extra


def fits(sent: str, taken: str) -> bool:
    """Whether an output of one type may be linked to an input of another; a comma separates alternatives."""
    if ANY in (sent, taken) or sent == taken:
        return True
    return set(sent.split(",")) <= set(taken.split(","))
