"""`--set NODE.INPUT=VALUE`: apply overrides to a workflow, with values of the declared types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.workflow.export_editor import to_workflow
from calotype.workflow.input_coercion import accepted, nearest
from calotype.workflow.load import Opened
from calotype.workflow.node_api import COMBO, Input, NodeDef


def changed(opened: Opened, changes: Sequence[str], registry: Mapping[str, NodeDef]) -> Opened:
    """The graph with the overrides applied, and the matching editor format."""
    prompt = deepcopy(opened.prompt)
    problems = []
    for text in changes:
        try:
            name, key, value = _change(text, prompt, registry)
        except ValueError as error:
            problems.append(Problem(f"--set {text}", str(error)))
        else:
            prompt[name].setdefault("inputs", {})[key] = value
    if problems:
        raise RequestError(problems)
    workflow = opened.workflow
    if changes or workflow is None:
        workflow = to_workflow(prompt, registry, workflow)
    return Opened(prompt, workflow, opened.unnamed)


def _change(text: str, prompt: Mapping[str, Any], registry: Mapping[str, NodeDef]) -> tuple[str, str, Any]:
    where, equals, value = text.partition("=")
    name, dot, key = where.rpartition(".")
    if not equals or not dot:
        raise ValueError("write NODE.INPUT=VALUE, for example 3.seed=5")
    if name not in prompt:
        raise ValueError(f"there is no node {name!r}; {nearest(name, prompt)}")
    given = prompt[name] if isinstance(prompt[name], dict) else {}
    node = registry.get(str(given.get("class_type")))
    if node is None or not isinstance(given.get("inputs", {}), dict):
        raise ValueError(f"node {name} has an unknown class")
    declared = node.input(key)
    if declared is None:
        known = nearest(key, (one.name for one in node.inputs))
        raise ValueError(f"node {name} ({node.name}) has no input {key!r}; {known}")
    return name, key, _value(declared, value)


def _value(declared: Input, text: str) -> Any:
    # Validation reports unknown names and out-of-range numbers later, with all other problems.
    if declared.type == COMBO:
        return text
    if declared.is_widget:
        return accepted(replace(declared, minimum=None, maximum=None), text)
    link = json.loads(text) if text.startswith("[") else None
    if not isinstance(link, list):
        raise ValueError(f'{declared.name} takes a {declared.type} through a link, written ["4", 0]')
    return link
