"""Finds what of a spec a Ray cluster can never run, from its nodes' resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calotype.core.errors import Problem, did_you_mean
from calotype.launch.ray.render import needs
from calotype.spec.launch import LaunchSpec

Resources = Mapping[str, float]
_UNITS = {"CPU": ("cpus_per_node", "CPUs", 1), "GPU": ("gpus_per_node", "GPUs", 1)}
_MIB = 2**20


def problems_with(spec: LaunchSpec, nodes: Sequence[Resources]) -> list[Problem]:
    """Problems with nodes of these resources; being busy is no problem."""
    if spec.ray.grows:
        return []
    required = needs(spec)
    problems = [
        problem
        for name, number in required.items()
        if (problem := _too_much(name, number, nodes)) is not None
    ]
    if problems:
        return problems
    fit = sum(all(node.get(name, 0) >= number for name, number in required.items()) for node in nodes)
    if spec.nodes > fit:
        rule = (
            f"{spec.nodes} nodes are more than the cluster has with these resources; ask for at most {fit}, "
            "or set ray.grows if it starts nodes on demand"
        )
        return [Problem("nodes", rule, spec.nodes)]
    return []


def _too_much(name: str, number: float, nodes: Sequence[Resources]) -> Problem | None:
    most = max((node.get(name, 0) for node in nodes), default=0)
    if number <= most:
        return None
    if name not in (*_UNITS, "memory"):
        known = sorted({each for node in nodes for each in node} - {*_UNITS, "memory"})
        shown = [each for each in known if not each.startswith(("node:", "object_store"))]
        rule = f"{number:g} of {name!r} are more than a node has, {most:g}"
        return Problem("ray.resources", f"{rule}; {did_you_mean(name, shown)}" if not most else rule, name)
    field, unit, size = _UNITS.get(name, ("memory_per_node", "MiB", _MIB))
    rule = f"{number / size:g} {unit} are more than a node of the cluster has; "
    return Problem(field, f"{rule}ask for at most {most // size:g}", number / size)
