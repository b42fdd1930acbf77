"""What of a spec a Ray cluster could never run, from what its nodes have. Asks nobody itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calotype.core.errors import Problem, did_you_mean
from calotype.launch.ray.render import needs
from calotype.spec.launch import LaunchSpec

Has = Mapping[str, float]
_UNITS = {"CPU": ("cpus_per_node", "CPUs", 1), "GPU": ("gpus_per_node", "GPUs", 1)}
_MIB = 2**20


def problems_with(spec: LaunchSpec, nodes: Sequence[Has]) -> list[Problem]:
    """Of nodes with these resources; one that is merely busy has none."""
    if spec.ray.grows:
        return []
    wanted = needs(spec)
    problems = [
        problem for name, number in wanted.items() if (problem := _too_much(name, number, nodes)) is not None
    ]
    if problems:
        return problems
    fit = sum(all(node.get(name, 0) >= number for name, number in wanted.items()) for node in nodes)
    if spec.nodes > fit:
        rule = (
            f"{spec.nodes} are more than the cluster has with so much of everything; ask for at most {fit}, "
            "or set ray.grows where it starts nodes when they are wanted"
        )
        return [Problem("nodes", rule, spec.nodes)]
    return []


def _too_much(name: str, number: float, nodes: Sequence[Has]) -> Problem | None:
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
