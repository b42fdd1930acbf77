"""Describes nodes as JSON in the format of ComfyUI's `/object_info`, which editors read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from calotype.workflow.node_api import COMBO, STRING, Catalogue, Input, NodeDef

JSON = dict[str, Any]


def describe_all(registry: Mapping[str, NodeDef], catalogue: Catalogue) -> JSON:
    """Every node by name."""
    return {name: describe(node, catalogue) for name, node in registry.items()}


def describe(node: NodeDef, catalogue: Catalogue) -> JSON:
    """One node: its inputs with limits and choices, its outputs, its menu category."""
    required = [declared for declared in node.inputs if not declared.optional]
    optional = [declared for declared in node.inputs if declared.optional]
    groups = {"required": required} | ({"optional": optional} if optional else {})
    return {
        "input": {group: _inputs(members, catalogue) for group, members in groups.items()},
        "input_order": {group: [one.name for one in members] for group, members in groups.items()},
        "output": [output.type for output in node.outputs],
        "output_is_list": [False for _ in node.outputs],
        "output_name": [output.name or output.type for output in node.outputs],
        "output_tooltips": [output.help for output in node.outputs],
        "name": node.name,
        "display_name": node.title or node.name,
        "description": node.help,
        "python_module": node.module,
        "category": node.category,
        "output_node": node.is_output,
    }


def _inputs(declared: Iterable[Input], catalogue: Catalogue) -> JSON:
    return {one.name: describe_input(one, catalogue) for one in declared}


def describe_input(declared: Input, catalogue: Catalogue) -> list[Any]:
    """A pair of type and settings; a COMBO has the list of names instead of the type."""
    settings: JSON = {
        "default": declared.default,
        "min": declared.minimum,
        "max": declared.maximum,
        "step": declared.step,
        "tooltip": declared.help or None,
    }
    settings = {key: value for key, value in settings.items() if value is not None}
    if declared.type == STRING:
        settings["multiline"] = declared.multiline
    switches = {
        "lazy": declared.lazy,
        "control_after_generate": declared.control_after_generate,
        "image_upload": declared.upload,
    }
    settings |= {key: True for key, value in switches.items() if value}
    return [choices_of(declared, catalogue) if declared.type == COMBO else declared.type, settings]


def choices_of(declared: Input, catalogue: Catalogue) -> list[str]:
    """The current choices; empty if a package fails to list them, so that the other nodes are described."""
    try:
        return [str(choice) for choice in declared.choose_from(catalogue)]
    except (Exception, SystemExit):
        return []
